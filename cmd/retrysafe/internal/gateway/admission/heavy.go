package admission

import (
	"sync"
	"sync/atomic"
	"time"
)

// heavy knows where large answers came from of late, and lets few exchanges of one
// consumer begin there at a time. The service writes an answer as soon as it is asked, and
// a thousand large ones at once take the processors of service, gateway and store from all
// other consumers, however the gateway takes them in.
type heavy struct {
	turns *Turns[source]

	marked atomic.Int32 // how many sources there are, so that most requests need no lock
	mu     sync.Mutex
	last   map[source]time.Time // when a large answer came
}

// A source is a route on which a consumer gets answers.
type source struct {
	of    Consumer
	route string
}

const (
	// heavyFor is for how long a source counts as heavy after a large answer.
	heavyFor = time.Minute
	// heavyLasts is how long a turn lasts, unless large answers of the consumer wait to be
	// taken in: a slow service is asked by as many requests as there are, and a fast one is not
	// asked for more than can be taken in.
	heavyLasts = 20 * time.Millisecond
	// heavyByProc is how many turns a source has for each processor.
	heavyByProc = 2
	maxSources  = 1024
)

func newHeavy() *heavy {
	return &heavy{turns: NewTurns[source](heavyByProc * Processors()), last: make(map[source]time.Time)}
}

// note notes a large answer.
func (h *heavy) note(s source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.last) >= maxSources {
		clear(h.last) // the heavy ones are noted again
	}
	h.last[s] = time.Now()
	h.marked.Store(int32(len(h.last))) //nolint:gosec // maxSources fits
}

// is reports whether a source is heavy.
func (h *heavy) is(s source) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok := h.last[s]
	if ok && time.Since(last) > heavyFor {
		delete(h.last, s)
		h.marked.Store(int32(len(h.last))) //nolint:gosec // maxSources fits
		return false
	}
	return ok
}

// NoteLarge notes that the claim's consumer got a large answer on a route.
func (c *Claim) NoteLarge(route string) {
	if c.of != nil {
		c.of.heavy.note(source{ConsumerOf(c.name, c.at), route})
	}
}

// BeginExchange waits, if the claim's consumer got large answers on the route of late and
// other consumers are at work too, until few of its other exchanges have just begun there.
// End is called when the exchange is over. It reports false if the turn has not come after
// so much waiting.
func (c *Claim) BeginExchange(route string, wait time.Duration) (end func(), ok bool) {
	b := c.of
	if b == nil || b.heavy.marked.Load() == 0 {
		return noTurn, true
	}
	s := source{ConsumerOf(c.name, c.at), route}
	if !b.heavy.is(s) || b.steps.isAlone(s.of) {
		return noTurn, true
	}
	if b.heavy.turns.TakeWithin(wait, s) != nil {
		return nil, false
	}
	return b.heavy.turns.during(s, span{most: heavyLasts, stays: func() bool { return b.large.waitingOf(s.of) > 0 }}), true
}
