package httpsink

import (
	"context"
	"sync"
)

// hosts limits how many requests are under way to each host, so that a slow host takes
// only its own share. It has an entry for a host only while requests to it are under way
// or wait.
type hosts struct {
	limit int

	mu    sync.Mutex
	slots map[string]*hostSlots
}

type hostSlots struct {
	taken    chan struct{}
	requests int // under way or waiting
}

// acquire waits for a slot of the host, and returns how to release it.
func (h *hosts) acquire(ctx context.Context, host string) (release func(), err error) {
	h.mu.Lock()
	s := h.slots[host]
	if s == nil {
		s = &hostSlots{taken: make(chan struct{}, h.limit)}
		h.slots[host] = s
	}
	s.requests++
	h.mu.Unlock()
	done := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.requests--; s.requests == 0 {
			delete(h.slots, host)
		}
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; done() }, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
