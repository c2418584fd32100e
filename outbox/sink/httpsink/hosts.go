package httpsink

import (
	"context"
	"sync"
)

// hosts bounds how many requests are under way to each host, so that a slow one
// takes only its own share. It remembers a host only while somebody needs it.
type hosts struct {
	limit int

	mu    sync.Mutex
	doors map[string]*door
}

type door struct {
	slots chan struct{}
	users int // who is inside or waits
}

// enter waits for a place, and returns how to give it back.
func (h *hosts) enter(ctx context.Context, host string) (leave func(), err error) {
	h.mu.Lock()
	d := h.doors[host]
	if d == nil {
		d = &door{slots: make(chan struct{}, h.limit)}
		h.doors[host] = d
	}
	d.users++
	h.mu.Unlock()
	gone := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if d.users--; d.users == 0 {
			delete(h.doors, host)
		}
	}
	select {
	case d.slots <- struct{}{}:
		return func() { <-d.slots; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}
