package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// However many handshakes of one address are computed, another address waits for none of
// them, and a handshake whose client is silent holds up none either.
func TestHandshakesOfOneAddressTakeTurns(t *testing.T) {
	t.Parallel()
	turns := admission.NewTurns[netip.Addr](2)
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var computing, most atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			c := &computation{turns: turns, ctx: t.Context(), of: one}
			for range 20 {
				if _, err := c.read(func([]byte) (int, error) { return 0, nil }, nil); err != nil {
					t.Error(err)
				}
				n := computing.Add(1)
				for {
					m := most.Load()
					if n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				time.Sleep(10 * time.Microsecond)
				computing.Add(-1)
			}
			c.pause()
		})
	}
	all.Wait()
	if most.Load() > 2 {
		t.Errorf("%d were computed at a time, want at most 2", most.Load())
	}

	for range 2 {
		takes(t, turns, one)
	}
	takes(t, turns, other)
	ended, end := context.WithCancel(t.Context())
	end()
	silent := &computation{turns: turns, ctx: ended, of: one}
	if _, err := silent.read(func([]byte) (int, error) { return 1, nil }, nil); !errors.Is(err, context.Canceled) || silent.has {
		t.Errorf("a handshake that was given up has a turn: %v", err)
	}
	turns.Give(one)
	turns.Give(one)
	turns.Give(other)
	if n := turns.Consumers(); n != 0 {
		t.Errorf("%d addresses are still remembered", n)
	}
}

// While other addresses have connections, a turn rests three times as long as it was
// computed in, up to a limit, before the next handshake of its address has it.
func TestHandshakesRestBesideOtherAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others        func() bool
		computed, gap time.Duration
	}{
		"alone":        {func() bool { return false }, time.Millisecond, 0},
		"beside":       {func() bool { return true }, time.Millisecond, 3 * time.Millisecond},
		"busy machine": {func() bool { return true }, time.Minute, 6 * time.Millisecond},
		"nil":          {nil, time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				turns := admission.NewTurns[netip.Addr](1)
				address := netip.MustParseAddr("192.0.2.1")
				one := &computation{turns: turns, ctx: t.Context(), of: address, others: c.others}
				if _, err := one.read(func([]byte) (int, error) { return 1, nil }, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.computed)
				one.pause()
				one.pause()
				began := time.Now()
				takes(t, turns, address)
				if gap := time.Since(began); gap != c.gap {
					t.Errorf("the next one has its turn after %v, want %v", gap, c.gap)
				}
				turns.Give(address)
			})
		})
	}
}

// A table knows whether its connections are of one address.
func TestTableHasOthers(t *testing.T) {
	t.Parallel()
	table := tableOf(4, "192.0.2.1/32")
	connected(t, table, "192.0.2.1")
	connected(t, table, "192.0.2.1")
	if table.hasOthers() {
		t.Error("of one address there are others")
	}
	connected(t, table, "192.0.2.2")
	if !table.hasOthers() {
		t.Error("of two addresses there are no others")
	}
}

// A client that sends half of its first message and then waits has no turn meanwhile.
func TestSilentHandshakeHoldsUpNone(t *testing.T) {
	t.Parallel()
	turns := admission.NewTurns[netip.Addr](1)
	server, client := net.Pipe()
	defer client.Close()
	address := netip.MustParseAddr("192.0.2.1")
	s := &connection{Conn: server, address: address, onClose: func(*connection) {}, computing: &computation{turns: turns, ctx: t.Context(), of: address}}
	ended := make(chan error)
	go func() {
		ended <- tls.Server(s, &tls.Config{MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
	}()
	if _, err := client.Write([]byte{22, 3, 1, 2, 0, 1}); err != nil {
		t.Fatal(err)
	}
	takes(t, turns, address) // waits until the handshake waits for its client
	turns.Give(address)
	client.Close()
	if err := <-ended; err == nil {
		t.Error("the handshake succeeded")
	}
}

// At the limit hundreds of requests wait; a search that found no idle connection stands
// for all of them until the next tick.
func TestSearchForIdleConnectionsIsShared(t *testing.T) {
	t.Parallel()
	table := tableOf(4, "192.0.2.1/32")
	var busy []*connection
	for range 4 {
		c := connected(t, table, "192.0.2.1")
		c.idleSince.Store(0)
		busy = append(busy, c)
	}
	search := func(atLeast int) *connection {
		table.mu.Lock()
		defer table.mu.Unlock()
		return table.oldestIdle(atLeast)
	}
	if search(1) != nil {
		t.Fatal("a busy connection gives way")
	}
	busy[0].rests(2 * giveWayAfter)
	table.scan = scan{at: time.Since(epoch) + time.Hour, atLeast: 1} // as after a search a moment ago, on a machine of any speed
	if search(2) != nil {
		t.Error("the second search looked again at once")
	}
	if got := search(0); got != busy[0] {
		t.Errorf("a search among more addresses found %v", got)
	}
	busy[0].rests(2 * giveWayAfter)
	table.scan = scan{at: time.Since(epoch) - reserveTick, atLeast: 0}
	if got := search(1); got != busy[0] {
		t.Errorf("after a tick the search found %v", got)
	}
}

func takes(t *testing.T, turns *admission.Turns[netip.Addr], a netip.Addr) {
	t.Helper()
	if err := turns.Take(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}
