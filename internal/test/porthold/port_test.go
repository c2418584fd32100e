//go:build linux

package porthold_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func TestAHeldPortRefusesConnectionsAndCannotBeTaken(t *testing.T) {
	t.Parallel()
	p := porthold.New(t)
	closed(t, p)

	l := listen(t, p)
	reached(t, p.Addr())
	taken(t, p)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	closed(t, p)
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second Close gives %v, want that the listener is closed", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close gives %v, want that the listener is closed", err)
	}
}

// A lent port is for a socket that the holder knows nothing of, with SO_REUSEADDR as
// net.Listen sets it. One server at a time can have it.
func TestALentPortIsForOneServer(t *testing.T) {
	t.Parallel()
	p := porthold.New(t)
	if err := p.Lend(); err != nil {
		t.Fatal(err)
	}
	refused(t, p.Addr())
	for range 2 { // the second starts again where the first was, with its old connections
		server, err := bind(t.Context(), p.Addr())
		if err != nil {
			t.Fatalf("the server gets %v", err)
		}
		near, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		taken(t, p)
		if err := errors.Join(server.Close(), far.Close()); err != nil {
			t.Fatal(err)
		}
	}
	listening := listen(t, p) // a holder that has lent the port can listen itself
	if err := p.TakeBack(); err != nil {
		t.Fatal(err)
	}
	reached(t, p.Addr())
	_ = listening.Close()
	closed(t, p)
}

func TestAReleasedPortIsFree(t *testing.T) {
	t.Parallel()
	p, err := porthold.Hold()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // once too often does no harm
		if err := p.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Lend(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Lend after Release gives %v, want that the port is closed", err)
	}
	if _, err := p.Listen(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Listen after Release gives %v, want that the port is closed", err)
	}
}

// A child process has copies of all descriptors for the moment before it executes its
// program. A listener that is closed in that moment listens no more all the same. The
// test runs by itself, since the listeners of other tests are not of that kind.
func TestClosingDoesNotWaitForChildrenThatStart(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var children sync.WaitGroup
	var started atomic.Int32
	for range 3 {
		children.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
				started.Add(1)
			}
		})
	}
	defer children.Wait()
	defer stop()
	p := porthold.New(t)
	for started.Load() < 100 {
		l, err := p.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var accepting sync.WaitGroup
		accepting.Go(func() {
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept ends with %v, want that the listener is closed", err)
			}
		})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		refused(t, p.Addr())
		accepting.Wait()
		if t.Failed() {
			return
		}
	}
}

// closed holds if connections to p are refused and no other program can take it.
func closed(t *testing.T, p *porthold.Port) {
	t.Helper()
	refused(t, p.Addr())
	taken(t, p)
}

func refused(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection gets %v, want connection refused", err)
	}
}

func reached(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Errorf("a connection gets %v", err)
		return
	}
	_ = conn.Close()
}

// taken holds if no other program can listen on p, with SO_REUSEADDR as net.Listen
// sets it, on this address or on all.
func taken(t *testing.T, p *porthold.Port) {
	t.Helper()
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "::"} {
		l, err := bind(t.Context(), net.JoinHostPort(host, strconv.Itoa(p.Number())))
		if err == nil {
			_ = l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("another program that listens on %s gets %v, want address already in use", host, err)
		}
	}
}

func bind(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

func listen(t *testing.T, p *porthold.Port) net.Listener {
	t.Helper()
	l, err := p.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
