package sim

import (
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// What has a bound, and which (S13).
const (
	mostTries     = 4   // of the reconciler, for one outcome
	leastSends    = 3   // of a worker, for one message
	mostSends     = 7   // as above
	mostNotes     = 32  // on one record
	mostCallSteps = 400 // of the store, in one call of a client
)

// bounded holds a record against what it may grow to.
func (s *slot) bounded(w *world, next *retrysafe.Record) {
	switch q := &next.Inquiry; {
	case q.Tries > mostTries:
		w.violate("S13", s, "the resolver was asked %d times about one outcome, and %d is the limit", q.Tries, mostTries)
	case len(q.Notes) > mostNotes:
		w.violate("S13", s, "a record has %d notes", len(q.Notes))
	}
}

// asked counts a step of the store towards the call that it is for.
func (w *world) asked() {
	c := w.at.call
	if c == nil {
		return
	}
	if c.steps++; c.steps > mostCallSteps {
		w.violate("S13", c.slot, "one call has made %d store operations", c.steps)
	}
}

// offered holds that nothing is sent for ever.
func (w *world) offered(list []outbox.Delivery) {
	for i := range list {
		if d := &list[i]; d.Tries >= mostSends {
			w.violate("S13", &w.slots[d.Payload[0]], "a message was sent %d times and is to be sent again", d.Tries)
		}
	}
}

// still holds that whatever was begun comes to its end when nothing new begins: no
// heartbeat goes on for an attempt that has ended.
func (w *world) still() {
	w.closes = true
	w.run(w.now + time.Minute)
	for _, a := range w.pending {
		if a.name == timerName && w.broken == nil {
			w.violate("S13", nil, "in the end a timer is left on %s, for %v from now", a.node.name, a.wake-w.now)
		}
	}
}
