package admission

import (
	"context"
	"sync"
)

// Turns bound how many pieces of work of one consumer are computed at a time. Without them
// a consumer that brings a thousand at once puts them before the next step of every
// request that is being served: the scheduler of Go knows no consumers. The work of other
// consumers waits for none of them.
type Turns[K comparable] struct {
	most int // of one consumer

	mu sync.Mutex
	of map[K]*turn
}

// A turn is what the pieces of work of one consumer share.
type turn struct {
	slots chan struct{}
	users int // that have it or wait for it; under the mutex
}

// NewTurns returns turns of which each consumer has so many at a time.
func NewTurns[K comparable](most int) *Turns[K] {
	return &Turns[K]{most: max(1, most), of: make(map[K]*turn)}
}

// Take waits for a turn of the consumer, which is given back by Give. It fails if ctx ends.
func (t *Turns[K]) Take(ctx context.Context, of K) error {
	t.mu.Lock()
	own := t.of[of]
	if own == nil {
		own = &turn{slots: make(chan struct{}, t.most)}
		t.of[of] = own
	}
	own.users++
	t.mu.Unlock()
	select {
	case own.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		t.drop(of, own)
		return ctx.Err()
	}
}

// Give gives a turn back.
func (t *Turns[K]) Give(of K) {
	t.mu.Lock()
	own := t.of[of]
	t.mu.Unlock()
	<-own.slots
	t.drop(of, own)
}

func (t *Turns[K]) drop(of K, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.of, of)
	}
}

// Consumers returns how many consumers have a turn or wait for one.
func (t *Turns[K]) Consumers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.of)
}
