package sim

import (
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// awaitedKey is a key that is used only when nothing goes wrong any more.
var awaitedKey = retrysafe.Ref{Scope: "c", Key: "awaited"}

// notices is how long a call that waits may take to notice what is stored: the longest
// pause between two looks, and a few steps.
const notices = 600 * time.Millisecond

// awaits lets a call wait on one node for an attempt on another. The attempt ends with
// an answer, or its node crashes. The call gets the answer, or learns that the lease has
// lapsed, without being asked again (L3).
func (w *world) awaits() {
	if w.broken != nil || w.nodeCount < 2 || w.policy.InFlight != retrysafe.InFlightWait || w.way == byWorker || w.way == byMessage ||
		w.plant != none && w.plant != staleLoads {
		return
	}
	owner, waiter := &w.nodes[0], &w.nodes[1]
	engine := waiter.engine
	s := &w.slots[len(w.slots)-1]
	policy := w.policy
	// The lock of an open transaction proves that its owner lives; its end is a matter of
	// the server.
	crashes := w.way != byDoTx && w.draw(2) == 1
	if crashes {
		w.holding = 2 * policy.Lease
		policy.Wait = 3*policy.Lease/2 + 2*notices // the lease may have been renewed just before the crash
		w.later(policy.Lease/2, owner.crash)
	} else {
		w.holding = 50*time.Millisecond + time.Duration(w.draw(int((policy.Wait-notices)/time.Millisecond)))*time.Millisecond
	}
	patient, err := engine.With(policy)
	if err != nil {
		w.violate("plan", nil, "the patient engine is refused: %v", err)
		return
	}
	w.tracef("one call waits on %s for another on %s, which crashes: %t", waiter.name, owner.name, crashes)
	w.spawn(clientNames[0], nil, 0, func() {
		_, _ = (&client{w: w, slot: s, print: 1}).call(outside, owner)
	})
	w.spawn(clientNames[1], nil, 200*time.Millisecond, func() {
		waiter.engine = patient
		c := &client{w: w, slot: s, print: 1}
		out, err := c.call(outside, waiter)
		waiter.engine = engine
		switch {
		case w.over:
		case err == nil:
			w.happens(answerAwaited)
			c.shown(&out)
		case crashes && errors.Is(err, retrysafe.ErrUnknown):
			w.happens(lapseAwaited)
		default:
			w.violate("L3", s, "a call waited for an attempt on another node, which crashed: %t, and is told: %v", crashes, err)
		}
	})
	w.run(w.now + 2*policy.Lease + 30*time.Second)
}
