package listener

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
)

// handshakeTurns bounds how many TLS handshakes of one address are computed at a time.
// Without it a client that connects a thousand times at once puts a thousand computations
// before the next step of every request that is being served. A turn is held while a
// handshake is computed and not while it waits for its client, so a slow client holds up
// no other of its address.
type handshakeTurns struct {
	most int // of one address

	mu    sync.Mutex
	turns map[netip.Addr]*turn
}

// A turn is what the handshakes of one address share.
type turn struct {
	slots chan struct{}
	users int // handshakes that have it or wait for it; under the mutex
}

func newHandshakeTurns() *handshakeTurns {
	return &handshakeTurns{most: max(1, runtime.GOMAXPROCS(0)/2), turns: make(map[netip.Addr]*turn)}
}

// take waits for a turn of the address, which is given back by give. It fails if ctx ends.
func (h *handshakeTurns) take(ctx context.Context, a netip.Addr) error {
	h.mu.Lock()
	t := h.turns[a]
	if t == nil {
		t = &turn{slots: make(chan struct{}, h.most)}
		h.turns[a] = t
	}
	t.users++
	h.mu.Unlock()
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		h.drop(a, t)
		return ctx.Err()
	}
}

// give gives a turn back.
func (h *handshakeTurns) give(a netip.Addr) {
	h.mu.Lock()
	t := h.turns[a]
	h.mu.Unlock()
	<-t.slots
	h.drop(a, t)
}

func (h *handshakeTurns) drop(a netip.Addr, t *turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(h.turns, a)
	}
}

// A computation is the part of one handshake's time in which it has a turn. It is used by
// the handshake's goroutine alone.
type computation struct {
	turns *handshakeTurns
	ctx   context.Context
	of    netip.Addr
	has   bool
}

// read reads from the client without a turn, and returns with one.
func (c *computation) read(from func([]byte) (int, error), p []byte) (int, error) {
	c.pause()
	n, err := from(p)
	if e := c.turns.take(c.ctx, c.of); e != nil {
		return 0, e
	}
	c.has = true
	return n, err
}

// pause gives the turn back, if there is one.
func (c *computation) pause() {
	if c.has {
		c.has = false
		c.turns.give(c.of)
	}
}
