package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/retrysafe/retrysafe/store/memstore"
)

// A world is one schedule: virtual time, and actors of which one runs at a time. It
// is used for one schedule after the other, because coroutines are dear to make.
type world struct {
	chance
	now     time.Duration // since the world began
	at      *actor        // the running actor
	pending []*actor      // actors that wait for a moment, in no order
	actors  []*actor      // all that were ever needed; the first used are this schedule's
	used    int
	idle    []*coroutine

	plan
	calm   bool // nothing goes wrong any more
	closes bool // and nothing new begins
	over   bool // an actor that is resumed unwinds
	steps  int
	nodes  [maxNodes]node

	mem       *memstore.Store
	skew      time.Duration // of the store's clock
	latest    time.Time     // that the store's clock has ever shown
	down      time.Duration // until when the store's server is down
	store     store
	txs       []*tx // open, as far as the server knows
	slots     []slot
	messages  []message
	delivered int           // messages that have ended so
	owners    uint64        // drawn so far
	serial    uint32        // of answers
	jumped    bool          // a clock was set
	holding   time.Duration // for how long the first node's next operation is held

	plant  plant
	broken *breach
	hash   uint64
	counts [events]uint64
	traces bool
	trace  []string
}

// began is when every world begins.
var began = time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)

// A breach is a promise that a schedule has broken.
type breach struct {
	invariant, key, what string
}

// violate notes the first broken promise and ends the schedule.
func (w *world) violate(invariant string, s *slot, format string, args ...any) {
	if w.broken != nil || w.over {
		return
	}
	b := &breach{invariant: invariant, what: fmt.Sprintf(format, args...)}
	if s != nil {
		b.key = s.name
	}
	w.tracef("BROKEN %s: %s", invariant, b.what)
	w.broken = b
}

// An actor is something that happens at a moment, and what runs from then on. It may
// be resumed any number of times; it waits in [world.pause].
type actor struct {
	w      *world
	name   string
	wake   time.Duration
	place  int // in pending, or -1
	do     func()
	inline bool       // do does not wait, and needs no coroutine
	co     *coroutine // once it has begun
	node   *node      // where its code runs; nil is outside of all
	doomed bool       // its node has crashed: it unwinds
	ended  bool
	call   *client // the request that it is about, if any
}

// crashed unwinds the code of a node that is no more.
type crashed struct{}

func (w *world) spawn(name string, n *node, after time.Duration, do func()) *actor {
	if w.used == len(w.actors) {
		w.actors = append(w.actors, &actor{w: w})
	}
	a := w.actors[w.used]
	w.used++
	*a = actor{w: w, name: name, do: do, node: n, wake: w.now + max(after, 0)}
	w.enqueue(a)
	return a
}

// later does something that does not wait, whichever nodes are alive then.
func (w *world) later(after time.Duration, do func()) {
	w.spawn("", nil, after, do).inline = true
}

func (w *world) enqueue(a *actor) {
	a.place = len(w.pending)
	w.pending = append(w.pending, a)
}

func (w *world) dequeue(a *actor) {
	last := len(w.pending) - 1
	moved := w.pending[last]
	w.pending[a.place], moved.place = moved, a.place
	w.pending[last], w.pending = nil, w.pending[:last]
	a.place = -1
}

// pause gives way to other actors for d. A doomed actor does not return from it.
func (w *world) pause(d time.Duration) {
	a := w.at
	if a.doomed {
		panic(crashed{}) //nolint:forbidigo // it unwinds the code of a node that has crashed, and is caught
	}
	a.wake = w.now + max(d, 0)
	w.enqueue(a)
	a.co.yield(struct{}{})
	if a.doomed {
		panic(crashed{}) //nolint:forbidigo // as above
	}
}

// mostSteps is how long a schedule may get before it counts as one that does not end.
const mostSteps = 50_000

// run lets actors run until the given moment, or until a promise is broken.
func (w *world) run(until time.Duration) {
	for w.broken == nil {
		a := w.choose(until)
		if a == nil {
			return
		}
		if a.node != nil && a.node.frozen > w.now {
			a.wake = a.node.frozen
			continue
		}
		if w.steps++; w.steps > mostSteps {
			w.violate("L1", nil, "the schedule does not come to an end")
			return
		}
		w.hash = mixed(w.hash ^ uint64(w.now) ^ uint64(a.place)<<56)
		w.resume(a)
	}
}

// choose returns the actor that runs next, and advances the time to its moment.
func (w *world) choose(until time.Duration) *actor {
	var first *actor
	ready := 0
	for _, a := range w.pending {
		switch {
		case a.wake <= w.now:
			ready++
			if first == nil || first.wake > w.now {
				first = a
			}
		case first == nil || a.wake < first.wake && ready == 0:
			first = a
		}
	}
	switch {
	case first == nil || first.wake > until:
		w.now = max(w.now, until)
		return nil
	case ready > 1:
		n := w.draw(ready)
		for _, a := range w.pending {
			if a.wake <= w.now {
				if n == 0 {
					return a
				}
				n--
			}
		}
	}
	w.now = max(w.now, first.wake)
	return first
}

func (w *world) resume(a *actor) {
	w.dequeue(a)
	w.at = a
	if a.inline {
		a.do()
		w.at = nil
		return
	}
	if a.co == nil {
		a.co = w.coroutine()
		a.co.job = a
	}
	co := a.co
	co.next()
	if a.ended {
		co.job = nil
		w.idle = append(w.idle, co)
	}
	w.at = nil
}

// finish unwinds all actors.
func (w *world) finish() {
	w.over = true
	for len(w.pending) > 0 {
		a := w.pending[len(w.pending)-1]
		if a.co == nil {
			w.dequeue(a)
			continue
		}
		a.doomed = true
		w.resume(a)
	}
}

// A coroutine runs actors, one after the other.
type coroutine struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	job   *actor
}

func (w *world) coroutine() *coroutine {
	if n := len(w.idle); n > 0 {
		co := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return co
	}
	co := &coroutine{}
	co.next, co.stop = iter.Pull(func(yield func(struct{}) bool) {
		co.yield = yield
		for {
			co.work()
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return co
}

// work runs one actor to its end.
func (co *coroutine) work() {
	a := co.job
	defer func() {
		a.ended = true
		if p := recover(); p != nil && p != any(crashed{}) {
			a.w.violate("panic", nil, "%s: %v\n%s", a.name, p, debug.Stack())
		}
	}()
	a.do()
}

// close ends the coroutines.
func (w *world) close() {
	for _, co := range w.idle {
		co.stop()
	}
	w.idle = nil
}

// tracef adds a line to the trace, if there is one.
func (w *world) tracef(format string, args ...any) {
	if !w.traces || w.over || w.broken != nil {
		return
	}
	who := "world"
	if w.at != nil && w.at.name != "" {
		who = w.at.name
		if w.at.node != nil {
			who += " on " + w.at.node.name
		}
	}
	w.trace = append(w.trace, fmt.Sprintf("%10.3fs  %-20s  %s", w.now.Seconds(), who, fmt.Sprintf(format, args...)))
}

// happens counts an event, and makes it a part of what tells schedules apart.
func (w *world) happens(e event) {
	w.counts[e]++
	w.hash = mixed(w.hash ^ uint64(e))
}
