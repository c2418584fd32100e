package netfault_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) {
	testservers.Main(m)
	leftover.None()
}

func TestWithoutAPlanEverythingPasses(t *testing.T) {
	t.Parallel()
	proxy, client, server := newPair(t)
	const size = 1 << 20
	go func() {
		_, _ = client.Write(make([]byte, size))
		_ = client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); len(got) != size || err != nil {
		t.Errorf("the server got %d bytes and %v, want %d and the end", len(got), err, size)
	}
	say(t, server, "an answer to a half-closed connection")
	_ = server.CloseWrite()
	if got := readAll(t, client); got != "an answer to a half-closed connection" {
		t.Errorf("the client got %q", got)
	}
	eventually(t, "the connection is forgotten", func() bool { return proxy.Open() == 0 })
	if proxy.Seen(netfault.ToServer) != size || proxy.Accepted() != 1 {
		t.Errorf("saw %d bytes on %d connections, want %d on 1", proxy.Seen(netfault.ToServer), proxy.Accepted(), size)
	}
}

func TestACutIsExactToTheByte(t *testing.T) {
	t.Parallel()
	const reply = "the whole reply"
	for n := range len(reply) + 1 {
		proxy, client, server := newPair(t)
		proxy.Plan(netfault.AfterBytes(netfault.ToClient, int64(n), netfault.Cut))
		go func() {
			for _, b := range []byte(reply) { // in pieces, as slow networks do
				_, _ = server.Write([]byte{b})
			}
		}()
		if got := readAll(t, client); got != reply[:n] {
			t.Errorf("cut after %d: the client got %q, want %q", n, got, reply[:n])
		}
	}
}

func TestCountingStartsWithThePlan(t *testing.T) {
	t.Parallel()
	proxy, client, server := newPair(t)
	say(t, server, "before")
	hear(t, client, "before")
	proxy.Plan(netfault.AfterBytes(netfault.ToClient, 2, netfault.Cut))
	say(t, client, "requests do not count")
	say(t, server, "after")
	if got := readAll(t, client); got != "af" {
		t.Errorf("the client got %q, want %q", got, "af")
	}
}

func TestASequenceIsFoundAcrossChunks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plan   netfault.Plan
		pieces []string
		want   string
	}{
		"before, at once":   {netfault.Before(netfault.ToClient, "COMMIT", netfault.Cut), []string{"BEGIN COMMIT done"}, "BEGIN "},
		"after, at once":    {netfault.After(netfault.ToClient, "COMMIT", netfault.Cut), []string{"BEGIN COMMIT done"}, "BEGIN COMMIT"},
		"before, in pieces": {netfault.Before(netfault.ToClient, "COMMIT", netfault.Cut), []string{"BEGIN C", "OMM", "IT done"}, "BEGIN COMM"},
		"after, in pieces":  {netfault.After(netfault.ToClient, "COMMIT", netfault.Cut), []string{"BEGIN C", "OMM", "IT done"}, "BEGIN COMMIT"},
		"a false start":     {netfault.After(netfault.ToClient, "COMMIT", netfault.Cut), []string{"COMCOM", "COMMI", "TED"}, "COMCOMCOMMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, client, server := newPair(t)
			proxy.Plan(test.plan)
			var passed strings.Builder
			for i, piece := range test.pieces {
				say(t, server, piece)
				if i < len(test.pieces)-1 { // the next piece is a chunk of its own
					hear(t, client, piece)
					passed.WriteString(piece)
				}
			}
			if got := passed.String() + readAll(t, client); got != test.want {
				t.Errorf("the client got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAResetIsOne(t *testing.T) {
	t.Parallel()
	proxy, client, server := newPair(t)
	proxy.Plan(netfault.AfterBytes(netfault.ToServer, 3, netfault.Reset))
	say(t, client, "request")
	for name, end := range map[string]net.Conn{"client": client, "server": server} {
		got, err := io.ReadAll(end)
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the %s got %q and %v, want a reset", name, got, err)
		}
	}
}

func TestAHalfCloseEndsOneDirection(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*netfault.Proxy, net.Conn){
		"planned": func(p *netfault.Proxy, server net.Conn) {
			p.Plan(netfault.AfterBytes(netfault.ToClient, 2, netfault.HalfClose))
			_, _ = server.Write([]byte("ok, and more"))
		},
		"struck": func(p *netfault.Proxy, server net.Conn) {
			_, _ = server.Write([]byte("ok"))
			eventually(t, "it has passed", func() bool { return p.Seen(netfault.ToClient) == 2 })
			p.Strike(netfault.HalfClose, netfault.ToClient)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, client, server := newPair(t)
			strike(proxy, server)
			if got := readAll(t, client); !strings.HasPrefix("ok", got) || name == "planned" && got != "ok" {
				t.Errorf("the client got %q, want %q and the end", got, "ok")
			}
			say(t, client, "still here")
			hear(t, server, "still here")
		})
	}
}

func TestABlackHoleKeepsWhatItGets(t *testing.T) {
	t.Parallel()
	proxy, client, server := newPair(t)
	proxy.Plan(netfault.AfterBytes(netfault.ToServer, 2, netfault.Discard))
	say(t, client, "hello?")
	hear(t, server, "he")
	// More than all socket buffers hold: the hole takes it.
	if n, err := client.Write(make([]byte, 32<<20)); err != nil {
		t.Errorf("the client could write only %d bytes: %v", n, err)
	}
	if err := proxy.Heal(); err != nil {
		t.Fatal(err)
	}
	say(t, client, "hello!")
	_ = client.CloseWrite() // of which the server must not learn either
	silent(t, server)
	say(t, server, "anybody there?")
	hear(t, client, "anybody there?")
}

func TestAStallEndsWithHeal(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*netfault.Proxy){
		"planned": func(p *netfault.Proxy) { p.Plan(netfault.AfterBytes(netfault.ToServer, 2, netfault.Stall)) },
		"struck":  func(p *netfault.Proxy) { p.Strike(netfault.Stall, netfault.ToServer) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, client, server := newPair(t)
			strike(proxy)
			say(t, client, "hello")
			if name == "planned" {
				hear(t, server, "he")
			}
			eventually(t, "it has arrived", func() bool { return proxy.Seen(netfault.ToServer) == 5 })
			say(t, client, " again")
			_ = client.CloseWrite()
			silent(t, server)
			say(t, server, "the other way is open")
			hear(t, client, "the other way is open")
			if err := proxy.Heal(); err != nil {
				t.Fatal(err)
			}
			if got, want := readAll(t, server), strings.TrimPrefix("hello again", map[string]string{"planned": "he"}[name]); got != want {
				t.Errorf("after the stall the server got %q, want %q", got, want)
			}
		})
	}
}

func TestAStalledSenderIsHeldBack(t *testing.T) {
	t.Parallel()
	proxy, client, _ := newPair(t)
	proxy.Strike(netfault.Stall)
	_ = client.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := client.Write(make([]byte, 32<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client could write %d bytes: %v, want full buffers", n, err)
	}
}

func TestAStrikeEndsAStall(t *testing.T) {
	t.Parallel()
	for _, f := range []netfault.Fault{netfault.Cut, netfault.Reset, netfault.Discard, netfault.HalfClose} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			proxy, client, server := newPair(t)
			proxy.Plan(netfault.Always(netfault.Stall, netfault.ToServer))
			say(t, client, "held")
			eventually(t, "it has arrived", func() bool { return proxy.Seen(netfault.ToServer) == 4 })
			proxy.Strike(f, netfault.ToServer)
			if f == netfault.Discard {
				silent(t, server)
				return
			}
			if got, err := io.ReadAll(server); len(got) > 0 || (f == netfault.Reset) != errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server got %q and %v", got, err)
			}
		})
	}
}

func TestRefusedAndHealed(t *testing.T) {
	t.Parallel()
	proxy, client, server := newPair(t)
	proxy.Refuse()
	if _, err := net.Dial("tcp", proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection gets %v, want connection refused", err)
	}
	if _, err := net.Listen("tcp", proxy.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another program that listens on the proxy's port gets %v, want address already in use", err)
	}
	say(t, client, "an open one goes on")
	hear(t, server, "an open one goes on")
	for range 2 { // once too often does no harm
		if err := proxy.Heal(); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatalf("after Heal the same address gives %v", err)
	}
	_ = conn.Close()
}

func TestSlowHoldsChunksBack(t *testing.T) {
	t.Parallel()
	const delay = 30 * time.Millisecond
	proxy, client, server := newPair(t)
	proxy.Plan(netfault.Slow(delay, netfault.ToServer))
	began := time.Now()
	say(t, client, "slowly")
	hear(t, server, "slowly")
	if took := time.Since(began); took < delay {
		t.Errorf("the request took %v, want at least %v", took, delay)
	}
	proxy.Plan(netfault.Slow(time.Hour))
	say(t, client, "never")
	eventually(t, "it has arrived", func() bool { return proxy.Seen(netfault.ToServer) == 5 })
	_ = proxy.Close() // and does not wait for the hour
}

func TestOnceLeavesTheNextConnectionWhole(t *testing.T) {
	t.Parallel()
	proxy, client, _ := newPair(t)
	proxy.Plan(netfault.Once(netfault.Always(netfault.Cut, netfault.ToServer)))
	say(t, client, "first")
	if got := readAll(t, client); got != "" {
		t.Errorf("the client got %q, want nothing", got)
	}
	second, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	say(t, second, "second")
	eventually(t, "it stays open", func() bool { return proxy.Open() == 1 && proxy.Seen(netfault.ToServer) == 11 })
}

func TestAPlanSeesEveryByte(t *testing.T) {
	t.Parallel()
	proxy, client, server := newPair(t)
	var seen strings.Builder // calls come one at a time
	done := make(chan struct{})
	proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
		if want := int64(seen.Len()); c.Dir == netfault.ToServer && c.Offset != want {
			t.Errorf("a chunk begins at %d, want %d", c.Offset, want)
		}
		seen.Write(c.Data)
		if seen.Len() == len("one two") {
			close(done)
		}
		return netfault.Verdict{}
	})
	say(t, client, "one ")
	hear(t, server, "one ")
	say(t, client, "two")
	<-done
	if seen.String() != "one two" {
		t.Errorf("the plan saw %q", seen.String())
	}
}

func TestAnAbsentTargetIsAReset(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, porthold.New(t).Addr())
	conn, err := net.Dial("tcp", proxy.Addr())
	if err == nil { // the reset may come while it dials or later
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client gets %v, want a reset", err)
	}
}

// Everything at once, for the race detector: whatever happens, Close returns.
func TestFaultsMayComeAtAnyTime(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, startEcho(t))
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 20 {
				talk(proxy.Addr())
			}
		})
	}
	over := make(chan struct{})
	go func() {
		clients.Wait()
		close(over)
	}()
	faults := []netfault.Fault{netfault.Stall, netfault.HalfClose, netfault.Discard, netfault.Reset, netfault.Cut}
	for i := 0; ; i++ {
		proxy.Plan(netfault.AfterBytes(netfault.Direction(i%2), 1500, faults[i%5]))
		if i%7 == 0 {
			proxy.Refuse()
		}
		select {
		case <-over:
			return // with some connections stalled, which the cleanup closes
		case <-time.After(time.Millisecond):
		}
		proxy.Strike(faults[(i+2)%5])
		if i%3 == 0 {
			if err := proxy.Heal(); err != nil {
				t.Error(err)
			}
		}
	}
}

// startEcho returns the address of a server that sends back what it gets.
func startEcho(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { // after that of the proxy, which has ended all connections
		_ = listener.Close()
		work.Wait()
	})
	return listener.Addr().String()
}

// talk makes a connection and a few exchanges on it, as far as they go.
func talk(addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
	for range 5 {
		_, _ = conn.Write(make([]byte, 1000))
		_, _ = conn.Read(make([]byte, 1000))
	}
}

func newProxy(t *testing.T, target string) *netfault.Proxy {
	t.Helper()
	proxy, err := netfault.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// newPair returns both ends of a connection through a proxy of its own.
func newPair(t *testing.T) (proxy *netfault.Proxy, client, server *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	proxy = newProxy(t, listener.Addr().String())
	near, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	for _, end := range []net.Conn{near, far} {
		if err := end.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the proxy has the connection", func() bool { return proxy.Open() == 1 })
	return proxy, near.(*net.TCPConn), far.(*net.TCPConn)
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatalf("say %q: %v", text, err)
	}
}

func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q and %v, want %q", got[:n], err, want)
	}
}

// readAll reads to the end, which is an end of stream or, if this side has sent
// something that was not read, a reset.
func readAll(t *testing.T, conn net.Conn) string {
	t.Helper()
	got, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %q the stream ends with %v", got, err)
	}
	return string(got)
}

// silent holds if nothing comes, not even an end.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes and %v came through, want silence", n, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
}

// eventually fails the test if promise is not kept soon.
func eventually(t *testing.T, promise string, kept func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !kept() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("in 10 s it has not come true that %s", promise)
		}
	}
}
