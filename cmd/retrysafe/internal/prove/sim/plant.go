package sim

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// A plant is a fault that we put into a world, to see that it is found.
type plant uint8

// The plants.
const (
	none              plant = iota
	staleSwaps              // the store's Swap does not compare the revision
	anyonesSwaps            // nor the owner
	overwritingCreate       // the store's Create overwrites
	reapsAnything           // the store's Purge takes what is in flight
	forgetsAnswers          // the store forgets answers that it has acknowledged
	forgetsClaims           // the store forgets reservations that it has acknowledged
	losesClaims             // a crash of its server does, whatever the policy says
	liar                    // the resolver says that nothing has happened, whatever did
	shortMemory             // answers are kept for less time than was promised
	forgetfulProvider       // the provider does not honour keys that the policy relies on
	dishonest               // the operation says that nothing has happened when it does not know
	oneScope                // the store does not tell scopes apart
	asksForEver             // the reconciler never gives up
	sendsForEver            // nor do the workers of the outbox, though the provider refuses each message
	staleLoads              // the store loads each record as it was the first time
	shortLeases             // the outbox ends a worker's lease long before its term
	plants
)

var plantNames = [plants]string{"none", "stale swaps", "anyone's swaps", "create overwrites", "purge takes what is in flight",
	"forgets answers", "forgets reservations", "a crash loses reservations", "resolver lies", "short memory", "provider ignores keys", "dishonest operation", "one scope for all",
	"asks for ever", "sends for ever", "stale loads", "short leases"}

// String names the plant.
func (p plant) String() string { return plantNames[p] }

// unfences reports whether the plant takes the fence away, so that what comes of it
// is to be found and not the fault itself.
func (p plant) unfences() bool { return p == staleSwaps || p == anyonesSwaps || p == overwritingCreate }

// triesOf returns how often something is tried, of which the promise is most.
func (w *world) triesOf(most int, forEver plant) int {
	if w.plant == forEver {
		return 1000
	}
	return most
}

// loaded returns the record as a load shows it.
func (w *world) loaded(got retrysafe.Record) retrysafe.Record {
	if w.plant != staleLoads || !w.calm {
		return got
	}
	at := w.slot(got.Ref)
	if at.loaded.Owner != got.Owner {
		at.loaded = got
	}
	return at.loaded
}

// termOf returns the term of a lease as the outbox counts it.
func (w *world) termOf(term time.Duration) time.Duration {
	if w.plant == shortLeases {
		return term / 4
	}
	return term
}

// confuses returns the key as a store knows it that does not tell scopes apart.
func (w *world) confuses(ref retrysafe.Ref) retrysafe.Ref {
	if w.plant == oneScope {
		ref.Scope = w.slots[0].ref.Scope
	}
	return ref
}

// overwrites reports whether a Create goes through although there is a record.
func (s *store) overwrites(at *slot, r *retrysafe.Write) bool {
	there := !at.gone && (at.hidden || s.w.plant == overwritingCreate) && s.w.holder(r.Ref) == nil
	return there && at.rec.Owner != r.Owner
}

func (s *store) overwrite(at *slot, r *retrysafe.Write) (retrysafe.Record, error) {
	next := *r
	next.Expect, next.Overwrite = at.rec.Fence(), true
	got, err := s.w.mem.Swap(outside, next)
	if err != nil {
		return got, err
	}
	at.hidden = false
	at.wrote(s.w, &next, &got)
	return got, nil
}

// unfenced returns the swap as a store without a fence understands it.
func (s *store) unfenced(at *slot, r *retrysafe.Write) *retrysafe.Write {
	if at.gone || s.w.plant != staleSwaps && s.w.plant != anyonesSwaps {
		return r
	}
	next := *r
	if next.Expect.Owner == at.rec.Owner || s.w.plant == anyonesSwaps {
		if next.Expect.Owner != at.rec.Owner && !next.Overwrite {
			next.Owner, next.Overwrite = next.Expect.Owner, true
		}
		next.Expect = at.rec.Fence()
	}
	return &next
}

// forgets lets the store lose what it has just acknowledged, now and then.
func (w *world) forgets(at *slot) {
	switch w.plant {
	case forgetsAnswers:
		at.hidden = at.rec.State == retrysafe.StateCompleted && w.hit(300)
	case forgetsClaims:
		at.hidden = at.rec.State == retrysafe.StateInProgress && w.hit(100)
	default:
	}
}

// reapAnything forgets whatever is due, in flight or not.
func (s *store) reapAnything() (n int, err error) {
	for i := range s.w.slots {
		at := &s.w.slots[i]
		if !at.gone && !at.hidden && !s.w.latest.Before(at.rec.Deadline) && s.w.holder(at.ref) == nil {
			at.hidden = true
			n++
		}
	}
	return n, nil
}
