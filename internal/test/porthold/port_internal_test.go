//go:build linux

package porthold

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// Two holders never have the same port, whatever the first allows others: each binds
// its own socket before the other could share it.
func TestTwoHoldersNeverHaveTheSamePort(t *testing.T) {
	t.Parallel()
	p := New(t)
	attempt := func(while string) {
		t.Helper()
		if h, err := hold(p.Number()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("while the port is %s, a second holder gets %v, want address already in use", while, err)
			_ = h.close()
		}
	}
	attempt("held")
	if err := p.Lend(); err != nil {
		t.Fatal(err)
	}
	attempt("lent")
	if err := p.TakeBack(); err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	attempt("listened on")
	_ = l.Close()
	attempt("closed")
}

// A port on which another program listens is not held, on whatever addresses that
// program listens.
func TestAPortInUseIsNotHeld(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "[::]"} {
		other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		_, port, _ := net.SplitHostPort(other.Addr().String())
		number, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := hold(number); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: the holder gets %v, want address already in use", other.Addr(), err)
			_ = h.close()
		}
	}
}

// The kernel gives a held port neither to a connection nor to a listener on port 0,
// also where the ports that it gives out begin below ours: this one is among them, and
// each socket here has only this one to choose.
func TestTheKernelGivesAHeldPortToNoSocket(t *testing.T) {
	t.Parallel()
	target, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	p := givenOut(t)
	only := among(p.number, p.number)
	attempt := func(while string) {
		t.Helper()
		conn, err := (&net.Dialer{Control: only}).DialContext(t.Context(), "tcp", target.Addr().String())
		if err == nil {
			_ = conn.Close()
		} else if errors.Is(err, syscall.ENOPROTOOPT) {
			t.Skip("this kernel cannot be told which ports a socket may have")
		}
		if !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("while the port is %s, a connection from it gets %v, want no address", while, err)
		}
		l, err := (&net.ListenConfig{Control: only}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err == nil {
			_ = l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("while the port is %s, a listener on port 0 gets %v, want address already in use", while, err)
		}
	}
	attempt("held")
	if err := p.Lend(); err != nil {
		t.Fatal(err)
	}
	attempt("lent")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	attempt("listened on")
	_ = l.Close()
	attempt("closed")

	// That the kernel does as it is told shows when there are others to choose.
	first, last := p.number-50, p.number+50
	conn, err := (&net.Dialer{Control: among(first, last)}).DialContext(t.Context(), "tcp", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.LocalAddr().(*net.TCPAddr).Port; got < first || got > last || got == p.number {
		t.Errorf("a connection from ports %d to %d is from %d, and %d is held", first, last, got, p.number)
	}
}

// among lets the kernel choose a socket's port from first to last only.
func among(first, last int) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		const ipLocalPortRange = 51 // since Linux 6.3
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipLocalPortRange, last<<16|first)
		}), err)
	}
}

// givenOut holds one of the ports that the kernel gives out by itself, with others
// around it.
func givenOut(t *testing.T) *Port {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		t.Fatal(err)
	}
	for range attempts {
		number := first + 50 + rand.IntN(last-first-100)
		if h, err := hold(number); err == nil {
			p := &Port{number: number, holder: h}
			t.Cleanup(func() { _ = p.Release() })
			return p
		}
	}
	t.Fatal("no port is free")
	return nil
}
