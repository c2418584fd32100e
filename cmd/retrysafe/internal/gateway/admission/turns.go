package admission

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Turns bound how many pieces of work of one consumer are computed at a time. Without them
// a consumer that brings a thousand at once puts them before the next step of every
// request that is being served: the scheduler of Go knows no consumers. The work of other
// consumers waits for none of them.
type Turns[K comparable] struct {
	most int // of one consumer
	// aloneFree says that a consumer is not bound while no other one has any work: nothing
	// would be gained, and its steps would share fewer commits.
	aloneFree bool

	mu      sync.Mutex
	of      map[K]*turn
	free    []*turn   // for reuse
	last    K         // the consumer whose work began last
	crowded time.Time // when the work of another consumer was last seen beside one's
}

const (
	// aloneAfter is for how long no other consumer has had work when one counts as alone.
	aloneAfter = time.Second
	keptTurns  = 64
)

// A turn is what the pieces of work of one consumer share.
type turn struct {
	held    int
	waiting []chan struct{} // closed when the turn has come, in this order
}

// NewTurns returns turns of which each consumer has so many at a time.
func NewTurns[K comparable](most int) *Turns[K] {
	return &Turns[K]{most: max(1, most), of: make(map[K]*turn)}
}

// Take waits for a turn of the consumer, which is given back by Give. It fails if ctx ends.
func (t *Turns[K]) Take(ctx context.Context, of K) error {
	come := t.enter(of)
	if come == nil {
		return nil
	}
	return t.await(ctx, of, come)
}

// TakeWithin is Take with a time limit, which costs nothing where there is a turn at once.
func (t *Turns[K]) TakeWithin(most time.Duration, of K) error {
	come := t.enter(of)
	if come == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return t.await(ctx, of, come)
}

// noTurn ends a turn that was not taken.
func noTurn() {}

// A span is how long a turn lasts. Work that ends earlier leaves the turn unused until then;
// the turn of work that takes longer ends by itself, unless stays reports that it must not.
type span struct {
	least, most time.Duration
	stays       func() bool // asked again after each most; nil: it ends
}

// during lets a turn that was taken end with its work, which end is called after, or by
// itself.
func (t *Turns[K]) during(of K, s span) (end func()) {
	began := time.Now()
	var ended atomic.Bool
	give := func() {
		if ended.CompareAndSwap(false, true) {
			t.Give(of)
		}
	}
	var expire func()
	expire = func() {
		if s.stays != nil && !ended.Load() && s.stays() {
			time.AfterFunc(s.most, expire)
			return
		}
		give()
	}
	timer := time.AfterFunc(s.most, expire)
	return func() {
		if rest := s.least - time.Since(began); rest > 0 {
			time.AfterFunc(rest, give)
			return
		}
		timer.Stop()
		give()
	}
}

// waitingOf returns how many pieces of work of the consumer wait for their turn.
func (t *Turns[K]) waitingOf(of K) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.of[of]; own != nil {
		return len(own.waiting)
	}
	return 0
}

// enter takes a turn and returns nil, or returns what is closed when the turn has come.
func (t *Turns[K]) enter(of K) (come chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[of]
	if own == nil {
		own = t.add(of)
	}
	if own.held < t.most || t.alone() {
		own.held++
		return nil
	}
	come = make(chan struct{})
	own.waiting = append(own.waiting, come)
	return come
}

func (t *Turns[K]) await(ctx context.Context, of K, come chan struct{}) error {
	select {
	case <-come:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[of]
	i := slices.Index(own.waiting, come)
	if i < 0 { // it came at the same time
		return nil
	}
	own.waiting = slices.Delete(own.waiting, i, i+1)
	return ctx.Err()
}

// add adds a consumer. The caller holds mu.
func (t *Turns[K]) add(of K) *turn {
	if t.aloneFree && (len(t.of) > 0 || of != t.last) {
		t.last, t.crowded = of, time.Now()
	}
	own := new(turn)
	if n := len(t.free); n > 0 {
		own, t.free = t.free[n-1], t.free[:n-1]
	}
	t.of[of] = own
	return own
}

// alone reports whether the consumer that asks is free because no other one has had work
// of late. The caller holds mu.
func (t *Turns[K]) alone() bool {
	return t.aloneFree && len(t.of) == 1 && time.Since(t.crowded) > aloneAfter
}

// isAlone reports whether no other consumer has had work of late.
func (t *Turns[K]) isAlone(of K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	others := len(t.of)
	if t.of[of] != nil {
		others--
	}
	return others == 0 && time.Since(t.crowded) > aloneAfter
}

// Give gives a turn back.
func (t *Turns[K]) Give(of K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[of]
	own.held--
	for len(own.waiting) > 0 && own.held < t.most {
		close(own.waiting[0])
		own.waiting = slices.Delete(own.waiting, 0, 1)
		own.held++
	}
	if own.held == 0 {
		delete(t.of, of)
		if len(t.free) < keptTurns {
			t.free = append(t.free, own)
		}
	}
}

// Consumers returns how many consumers have a turn or wait for one.
func (t *Turns[K]) Consumers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.of)
}
