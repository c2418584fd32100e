package recoverytest

import (
	"context"
	"errors"
	"slices"

	"github.com/retrysafe/retrysafe"
)

// Each of these returns one round of a background duty. The actor keeps copies of
// records and acts upon them later, like a process that was stopped in between.

// copies are records as they were some time ago.
type copies struct{ all []retrysafe.Record }

// mix adds some of the records to the copies, and one of the copies to the records.
func (c *copies) mix(s *scene, found []retrysafe.Record) []retrysafe.Record {
	if n := len(c.all); n > 0 && s.chance(50) {
		i := s.draw(n)
		found = append(slices.Clip(found), c.all[i])
		c.all = slices.Delete(c.all, i, i+1)
	}
	for _, r := range found {
		if len(c.all) < 50 && s.chance(50) {
			c.all = append(c.all, r)
		}
	}
	return found
}

func (s *scene) worker(ctx context.Context) func() {
	var old copies
	return func() {
		found, _ := s.handle("worker").List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}, Limit: 10})
		for _, r := range old.mix(s, found) {
			i := slices.IndexFunc(s.kinds, func(k kind) bool { return k.name == r.Scope })
			n := s.node("worker")
			x, err := s.engine(n, &s.kinds[i]).TakeUp(ctx, r)
			switch {
			case err == nil:
				s.tally("taken up")
				s.own(ctx, &s.kinds[i], n, x)
			case !errors.Is(err, retrysafe.ErrLost):
				s.violation("take up %v: %w", r.Ref, err)
			}
		}
	}
}

func (s *scene) sweeper(ctx context.Context) func() {
	var old copies
	return func() {
		h := s.handle("sweeper")
		found, _ := h.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateAccepted}, Due: true})
		for _, r := range old.mix(s, found) {
			next, ok := retrysafe.DecideLapse(r)
			if !ok {
				s.violation("%v is %v and due, and DecideLapse does not settle it", r.Ref, r.State)
				continue
			}
			s.delay(ctx)
			err := s.sweepOne(ctx, h, r, next)
			if err == nil {
				s.tally("swept to " + next.State.String())
			}
			if !answers(err) {
				s.violation("sweep %v: %w", r.Ref, err)
			}
		}
	}
}

// swapIn is how a sweeper swaps.
func swapIn(ctx context.Context, s retrysafe.Store, _ retrysafe.Record, next retrysafe.Write) error {
	_, err := s.Swap(ctx, next)
	return err
}

func (s *scene) reaper(ctx context.Context) func() {
	return func() {
		n, err := s.purge(ctx, s.handle("reaper"))
		if err != nil {
			s.violation("purge: %w", err)
		}
		for range n {
			s.tally("purged")
		}
	}
}

// purgeAll is how a reaper purges.
func purgeAll(ctx context.Context, s retrysafe.Store) (int, error) { return s.Purge(ctx, 1000) }

func (s *scene) reconciler(ctx context.Context) func() {
	var old copies
	return func() {
		h := s.handle("reconciler")
		found, _ := h.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}, Due: s.chance(50)})
		for _, r := range old.mix(s, found) {
			if r.Inquiry.Dead {
				continue
			}
			e := s.ask(&r)
			e.By = "reconciler"
			next, err := retrysafe.DecideEvidence(r, e, retrysafe.Recheck{After: s.lease / 2, Limit: 6})
			contradicted := r.UnderReview() && e.Finding == retrysafe.FindingHappened // it is disputed from now on
			if err != nil && !(contradicted && errors.Is(err, retrysafe.ErrContradiction)) {
				s.violation("conclude %v: %w", r.Ref, err)
				continue
			}
			s.delay(ctx)
			_, err = h.Swap(ctx, next)
			if err == nil {
				s.tally("concluded " + e.Finding.String())
			}
			if !answers(err) {
				s.violation("conclude %v: %w", r.Ref, err)
			}
		}
	}
}

// ask asks the provider what became of an operation.
func (s *scene) ask(r *retrysafe.Record) retrysafe.Evidence {
	receipt, happened := s.ledger.found(r)
	switch {
	case s.chance(20):
		return retrysafe.Evidence{Finding: retrysafe.FindingUnknown}
	case happened:
		return retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: paid(receipt), Text: receipt}
	default:
		return s.absent(r)
	}
}

// tombstoned returns the evidence about an operation that the provider does not know.
// If the effects are unprotected, the provider refuses the operation from then on.
func (s *scene) tombstoned(r *retrysafe.Record) retrysafe.Evidence {
	v := retrysafe.Evidence{Finding: retrysafe.FindingNotHappened}
	if r.Effects != retrysafe.EffectsUnprotected || s.chance(30) {
		return v
	}
	if receipt, happened := s.ledger.tombstone(r); happened {
		return retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: paid(receipt), Text: receipt}
	}
	v.Proof = retrysafe.ProofTombstone
	return v
}

// delay sleeps for a while between a read and a step.
func (s *scene) delay(ctx context.Context) {
	switch {
	case s.chance(10):
		s.nap(ctx, 2*s.lease)
	case !s.real:
		s.nap(ctx, s.lease/10)
	}
}
