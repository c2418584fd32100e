package janitor_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/janitor"
)

// A late owner of the attempt may still settle it: it knows best. It keeps what was
// noted in the meantime.
func TestReconcilerLetsALateOwnerSettleItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		x, wake := w.falls(t)
		c := w.reconciler(&says{verdict: janitor.StillUnknown("ask later")}, janitor.ReconcilerOptions{})
		time.Sleep(time.Minute)
		once(t, c, 1)
		w.refused(t, retrysafe.ErrUnknown)
		wake()
		must(t, x.Complete(t.Context(), answer("late")))
		w.replays(t, 201, "late")
		if r := w.record(t); len(r.Inquiry.Notes) != 2 {
			t.Errorf("its notes are %+v", r.Inquiry.Notes)
		}
		time.Sleep(time.Hour)
		once(t, c, 0)
	})
}

// meanwhile is a resolver during whose work something else happens.
func meanwhile(v retrysafe.Evidence, do func()) janitor.Resolver {
	return janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
		do()
		return v, nil
	})
}

// What the owner says while the provider is asked comes first, and is not
// overwritten by what the provider said.
func TestReconcilerThatComesTooLateOverwritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		x, wake := w.falls(t)
		time.Sleep(time.Minute)
		c := w.reconciler(meanwhile(janitor.Declined(retrysafe.Result{Status: 402}, ""), func() {
			wake()
			must(t, x.Complete(t.Context(), answer("the owner's")))
		}), janitor.ReconcilerOptions{})
		once(t, c, 0)
		w.replays(t, 201, "the owner's")
		if c.Stats().Overtaken != 1 {
			t.Errorf("counted %+v", c.Stats())
		}
	})
}

// The owner states that nothing happened while the provider says that it did. One of
// them is wrong: it is an operator's, and nothing runs until then.
func TestReconcilerMeetsAContradiction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		x, wake := w.falls(t)
		time.Sleep(time.Minute)
		c := w.reconciler(meanwhile(janitor.Happened(answer("paid"), "ch_1"), func() {
			wake()
			must(t, x.Release(t.Context(), errors.New("nothing was sent")))
		}), janitor.ReconcilerOptions{})
		once(t, c, 1)
		w.refused(t, retrysafe.ErrUnknown)
		if r := w.record(t); !r.Inquiry.Dead || c.Stats().Contradicted != 1 || w.saw(retrysafe.EventContradicted) != 1 {
			t.Errorf("dead %v, counted %+v", r.Inquiry.Dead, c.Stats())
		}
	})
}

// The same, and the next attempt is running already: nothing can be undone, but the
// contradiction is reported.
func TestReconcilerMeetsAContradictionTooLate(t *testing.T) {
	t.Parallel()
	happened, declined := janitor.Happened(answer("paid"), "ch_1"), janitor.Declined(retrysafe.Result{Status: 402}, "no money")
	for _, c := range []struct {
		effects retrysafe.Effects
		verdict retrysafe.Evidence
		want    int
	}{
		{retrysafe.EffectsUnprotected, happened, 1},
		{retrysafe.EffectsKeyed, happened, 0}, // it is the same effect
		{retrysafe.EffectsUnprotected, declined, 0},
	} {
		effects, verdict, want := c.effects, c.verdict, c.want
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, retrysafe.Policy{Effects: effects, Lapse: retrysafe.LapseQuarantine})
			x, wake := w.falls(t)
			time.Sleep(time.Minute)
			var heir *retrysafe.Execution
			c := w.reconciler(meanwhile(verdict, func() {
				wake()
				must(t, x.Release(t.Context(), errors.New("nothing was sent")))
				heir = w.begins(t)
			}), janitor.ReconcilerOptions{})
			once(t, c, 0)
			if got := w.saw(retrysafe.EventContradicted); got != want || int(c.Stats().Contradicted) != want || c.Stats().Overtaken != 1 {
				t.Errorf("%s, %s: the contradiction was reported %d times, want %d; counted %+v", effects, verdict.Finding, got, want, c.Stats())
			}
			must(t, heir.Complete(t.Context(), answer("heir's")))
		})
	}
}

// Evidence is applied again if an operator has added a note in the meantime; a reply
// without evidence is not worth a second try.
func TestReconcilerTriesEvidenceAgainOnWhatHasMoved(t *testing.T) {
	t.Parallel()
	for _, v := range []retrysafe.Evidence{janitor.Happened(answer("paid"), "ch_1"), janitor.StillUnknown("ask later")} {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		c := w.reconciler(meanwhile(v, func() {
			r := w.record(t).Update()
			r.AddNote(retrysafe.Note{By: "operator anna", Text: "asked them by telephone"})
			r.Term = time.Hour
			_, err := w.mem.Swap(t.Context(), r)
			must(t, err)
		}), janitor.ReconcilerOptions{})
		_, err := c.RunOnce(t.Context())
		must(t, err)
		r := w.record(t)
		if v.Finding == retrysafe.FindingHappened && (r.State != retrysafe.StateCompleted || len(r.Inquiry.Notes) != 2) {
			t.Errorf("it is %s, %+v", r.State, r.Inquiry)
		}
		if v.Finding == retrysafe.FindingUnknown && (r.Inquiry.Tries != 0 || c.Stats().Overtaken != 1) {
			t.Errorf("%+v, counted %+v", r.Inquiry, c.Stats())
		}
	}
}

// Evidence about an operation does not reach another one under the same key, although
// both are in their first attempt: the key was forgotten and used again meanwhile.
func TestReconcilerKeepsEvidenceFromTheNextOperation(t *testing.T) {
	t.Parallel()
	for _, v := range []retrysafe.Evidence{janitor.Happened(answer("paid"), "ch_1"), janitor.Declined(retrysafe.Result{Status: 402}, "")} {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		c := w.reconciler(meanwhile(v, func() {
			r := w.record(t).Update()
			r.Overwrite, r.Owner, r.Term = true, retrysafe.Owner{9}, time.Hour
			_, err := w.mem.Swap(t.Context(), r)
			must(t, err)
		}), janitor.ReconcilerOptions{})
		_, err := c.RunOnce(t.Context())
		must(t, err)
		if r := w.record(t); r.State != retrysafe.StateUnknown || r.Result != nil || r.Owner != (retrysafe.Owner{9}) {
			t.Errorf("the next operation is %s with %+v after evidence about the one before it", r.State, r.Result)
		}
	}
}

// A record that is gone, or that a transaction holds, when the evidence is there: that
// contradicts nothing.
func TestReconcilerWhoseRecordIsGone(t *testing.T) {
	t.Parallel()
	for _, why := range []error{retrysafe.ErrNotFound, retrysafe.ErrBusy} {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		c := janitor.NewReconciler(&refusing{Store: w.mem, after: 1, why: why}, &says{verdict: janitor.Happened(answer("paid"), "ch_1")}, &janitor.ReconcilerOptions{Options: w.opts()})
		once(t, c, 0)
		if s := c.Stats(); s.Overtaken != 1 || s.Contradicted != 0 || s.Completed != 0 || w.saw(retrysafe.EventContradicted) != 0 {
			t.Errorf("%v: counted %+v", why, s)
		}
		w.is(t, retrysafe.StateUnknown)
	}
}

// refusing is a store that refuses swaps after so many.
type refusing struct {
	retrysafe.Store
	after int
	why   error
}

func (s *refusing) Swap(ctx context.Context, next retrysafe.Write) (retrysafe.Record, error) {
	if s.after--; s.after < 0 {
		return retrysafe.Record{}, s.why
	}
	return s.Store.Swap(ctx, next)
}

// Of many nodes one settles each record, and what is settled is not asked about.
func TestReconcilersOfManyNodes(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		const keys, nodes = 60, 4
		for i := range keys {
			put(t, store, record(key(i), retrysafe.StateUnknown, 0))
		}
		w := &world{}
		resolver := &says{verdict: janitor.Happened(answer("paid"), "ch_1")}
		var wg sync.WaitGroup
		var changed atomic.Int64
		for range nodes {
			c := janitor.NewReconciler(store, resolver, &janitor.ReconcilerOptions{Options: w.opts()})
			wg.Go(func() {
				n, err := c.RunOnce(t.Context())
				if err != nil {
					t.Error(err)
				}
				changed.Add(int64(n))
			})
		}
		wg.Wait()
		if changed.Load() != keys || w.saw(retrysafe.EventResolved) != keys {
			t.Errorf("%d were settled and %d told of, want %d", changed.Load(), w.saw(retrysafe.EventResolved), keys)
		}
		for i := range keys {
			if got := load(t, store, key(i)); got.State != retrysafe.StateCompleted {
				t.Errorf("%s is %s", key(i), got.State)
			}
		}
	})
}

// What was settled since it was listed is not asked about: a resolver that places
// tombstones would do so for an attempt that is over.
func TestReconcilerAsksOnlyAboutWhatIsStillUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	w.unknown(t, retrysafe.EffectsUnprotected)
	settled := false
	w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap && !settled {
			settled = true
			r, a := w.record(t).Update(), answer("the owner's")
			r.State, r.Result, r.Term = retrysafe.StateCompleted, &a, time.Hour
			_, err := w.mem.Swap(t.Context(), r)
			must(t, err)
		}
		return faultstore.None
	})
	resolver := &says{verdict: janitor.Tombstoned("cancelled")}
	c := janitor.NewReconciler(w.fault, resolver, &janitor.ReconcilerOptions{Options: w.opts()})
	once(t, c, 0)
	if resolver.n.Load() != 0 || c.Stats().Overtaken != 1 {
		t.Errorf("it was asked about %d times, counted %+v", resolver.n.Load(), c.Stats())
	}
	w.replays(t, 201, "the owner's")
}

// A dead letter's event is not lost with the store's reply, and neither is the question
// that was taken.
func TestReconcilerRecognisesItsOwnStep(t *testing.T) {
	t.Parallel()
	for step := 1; step <= 2; step++ {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		w.fault.Plan(faultstore.FailOnce(faultstore.Swap, step, faultstore.LoseReply))
		c := janitor.NewReconciler(w.fault, &says{}, &janitor.ReconcilerOptions{Options: w.opts(), Tries: 1})
		once(t, c, 1)
		if c.Stats().Dead != 1 || w.saw(retrysafe.EventDead) != 1 || w.record(t).Inquiry.Tries != 1 {
			t.Errorf("swap %d: counted %+v", step, c.Stats())
		}
	}
}
