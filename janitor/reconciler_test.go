package janitor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// says is a resolver that always says the same, and counts how often.
type says struct {
	verdict retrysafe.Evidence
	err     error
	n       atomic.Int64
}

func (s *says) Resolve(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
	s.n.Add(1)
	return s.verdict, s.err
}

func (w *world) unknown(t *testing.T, effects retrysafe.Effects) {
	t.Helper()
	r := record(ref.Key, retrysafe.StateUnknown, 0)
	r.Effects = effects
	put(t, w.mem, r)
}

// asked runs a reconciler until it has had time enough for all of its tries.
func asked(t *testing.T, c *janitor.Reconciler) {
	t.Helper()
	runFor(t, 36*time.Hour, c)
}

// Twelve tries in about a day, each pause twice the one before.
func TestReconcilerAsksLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		var at []time.Time
		resolver := janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
			at = append(at, time.Now())
			return janitor.StillUnknown("they are closed"), nil
		})
		half := func() float64 { return 0.5 } // no jitter
		c := w.reconciler(resolver, janitor.ReconcilerOptions{Options: janitor.Options{Rand: half}})
		for range 12 {
			once(t, c, 1)
			once(t, c, 0)
			if r := w.record(t); !r.Inquiry.Dead {
				time.Sleep(r.Deadline.Sub(r.ReadAt))
			}
		}
		time.Sleep(10 * 24 * time.Hour)
		once(t, c, 0)
		for i, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 480, 480} {
			if pause := at[i+1].Sub(at[i]); pause != time.Duration(want)*time.Minute {
				t.Errorf("pause %d is %v, want %d minutes", i+1, pause, want)
			}
		}
		if all := at[11].Sub(at[0]); all != 24*time.Hour+31*time.Minute {
			t.Errorf("all tries span %v", all)
		}
		notes := w.record(t).Inquiry.Notes
		if len(notes) != 12 || notes[11].By != "resolver" || !strings.Contains(notes[11].Text, "they are closed") {
			t.Errorf("its notes are %+v", notes)
		}
	})
}

func TestReconcilerSettlesByTheVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effects retrysafe.Effects
		verdict retrysafe.Evidence
		err     error
		state   retrysafe.State
		stats   janitor.ReconcilerStats
		kind    retrysafe.EventKind
		note    string
	}{
		"happened": {verdict: janitor.Happened(answer("paid"), "ch_1"), state: retrysafe.StateCompleted,
			stats: janitor.ReconcilerStats{Asked: 1, Completed: 1}, kind: retrysafe.EventResolved, note: "happened: ch_1"},
		"declined": {verdict: janitor.Declined(retrysafe.Result{Status: 402}, "no money"), state: retrysafe.StateCompleted,
			stats: janitor.ReconcilerStats{Asked: 1, Completed: 1}, kind: retrysafe.EventResolved, note: "declined: no money"},
		"not happened, in tx": {effects: retrysafe.EffectsInTx, verdict: janitor.NotHappened("no row"), state: retrysafe.StateRetryable,
			stats: janitor.ReconcilerStats{Asked: 1, Released: 1}, kind: retrysafe.EventResolved, note: "not_happened: no row"},
		"not happened, unprotected": {verdict: janitor.NotHappened("no such charge"), state: retrysafe.StateUnknown,
			stats: janitor.ReconcilerStats{Asked: 1, StillUnknown: 1}, kind: retrysafe.EventInquired, note: "no proof"},
		"tombstoned": {verdict: janitor.Tombstoned("cancelled"), state: retrysafe.StateRetryable,
			stats: janitor.ReconcilerStats{Asked: 1, Released: 1}, kind: retrysafe.EventResolved, note: "tombstone placed: cancelled"},
		"still unknown": {verdict: janitor.StillUnknown("ask later"), state: retrysafe.StateUnknown,
			stats: janitor.ReconcilerStats{Asked: 1, StillUnknown: 1}, kind: retrysafe.EventInquired, note: "ask later"},
		"error": {verdict: retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer("never mind"), ProviderRef: "ch_1"}, err: errors.New("502 from the provider"), state: retrysafe.StateUnknown,
			stats: janitor.ReconcilerStats{Asked: 1, ResolverErrors: 1, StillUnknown: 1}, kind: retrysafe.EventInquired, note: "502 from the provider"},
		"an answer that is none": {verdict: janitor.Happened(retrysafe.Result{}, "ch_1"), state: retrysafe.StateUnknown,
			stats: janitor.ReconcilerStats{Asked: 1, StillUnknown: 1}, kind: retrysafe.EventInquired, note: "needs the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, retrysafe.Policy{})
				w.unknown(t, c.effects)
				time.Sleep(2 * time.Minute) // beyond the settle window
				r := w.reconciler(&says{verdict: c.verdict, err: c.err}, janitor.ReconcilerOptions{By: "resolver stripe"})
				once(t, r, 1)
				w.is(t, c.state)
				stats := r.Stats()
				stats.Passes = janitor.Passes{}
				if stats != c.stats {
					t.Errorf("counted %+v, want %+v", stats, c.stats)
				}
				if got := w.record(t).ProviderRef; got != c.verdict.ProviderRef {
					t.Errorf("the provider's id is %q", got)
				}
				if w.saw(c.kind) != 1 {
					t.Errorf("no event %s was reported", c.kind)
				}
				for _, e := range w.events {
					if e.Kind == c.kind && (e.Err != nil) != (c.err != nil || c.note == "needs the answer") {
						t.Errorf("the event's error is %v", e.Err)
					}
				}
				if notes := w.record(t).Inquiry.Notes; len(notes) != 1 || notes[0].By != "resolver stripe" || !strings.Contains(notes[0].Text, c.note) {
					t.Errorf("its notes are %+v, want %q", notes, c.note)
				}
				once(t, r, 0) // it is settled, or not due again yet
			})
		})
	}
}

// Evidence about a record that was written meanwhile counts if it is sure, and is dropped if
// not: a later pass asks again about what is known by then.
func TestReconcilerDropsUncertainEvidenceThatIsOvertaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verdict retrysafe.Evidence
		state   retrysafe.State
		stats   janitor.ReconcilerStats
	}{
		"happened":               {janitor.Happened(answer("paid"), "ch_1"), retrysafe.StateCompleted, janitor.ReconcilerStats{Asked: 1, Completed: 1}},
		"tombstoned":             {janitor.Tombstoned("cancelled"), retrysafe.StateRetryable, janitor.ReconcilerStats{Asked: 1, Released: 1}},
		"not happened, no proof": {janitor.NotHappened("no such charge"), retrysafe.StateUnknown, janitor.ReconcilerStats{Asked: 1}},
		"still unknown":          {janitor.StillUnknown("ask later"), retrysafe.StateUnknown, janitor.ReconcilerStats{Asked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, retrysafe.Policy{})
				w.unknown(t, retrysafe.EffectsInTx)
				time.Sleep(2 * time.Minute) // beyond the settle window
				r := w.reconciler(meanwhile(c.verdict, func() {
					now := w.record(t)
					next := now.Update()
					next.AddNote(retrysafe.Note{By: "webhook", Text: "an event came"})
					if _, err := w.mem.Swap(t.Context(), next); err != nil {
						t.Error(err)
					}
				}), janitor.ReconcilerOptions{})
				_, err := r.RunOnce(t.Context())
				must(t, err)
				w.is(t, c.state)
				stats := r.Stats()
				if late := stats.Overtaken; late != map[bool]uint64{true: 1}[c.state == retrysafe.StateUnknown] {
					t.Errorf("%d were overtaken", late)
				}
				stats.Passes = janitor.Passes{}
				if stats != c.stats {
					t.Errorf("counted %+v, want %+v", stats, c.stats)
				}
			})
		})
	}
}

// A resolver that panics has asked in vain, and the others are asked all the same.
func TestReconcilerOutlivesAPanic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("bad", retrysafe.StateUnknown, 0))
	put(t, w.mem, record("good", retrysafe.StateUnknown, 0))
	out := &logs{}
	c := w.reconciler(janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
		if r.Key == "bad" {
			panic("boom")
		}
		return janitor.Happened(answer("paid"), ""), nil
	}), janitor.ReconcilerOptions{Options: janitor.Options{Logger: out.logger()}})
	once(t, c, 2)
	if got := load(t, w.mem, "good").State; got != retrysafe.StateCompleted {
		t.Errorf("the other is %s", got)
	}
	bad := load(t, w.mem, "bad")
	if bad.State != retrysafe.StateUnknown || bad.Inquiry.Tries != 1 || !strings.Contains(bad.Inquiry.Notes[0].Text, "panic: boom") {
		t.Errorf("it is %s, %+v", bad.State, bad.Inquiry)
	}
	if !strings.Contains(out.String(), "reconciler_test.go") {
		t.Errorf("the log does not say where: %s", out)
	}
}

// "Not found" is not believed within the first minute, which is the default.
func TestReconcilerBelievesNotFoundAfterAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]retrysafe.State{59 * time.Second: retrysafe.StateUnknown, time.Minute: retrysafe.StateRetryable} {
			mem := memstore.New(nil)
			r := record("key", retrysafe.StateUnknown, 0)
			r.Effects = retrysafe.EffectsKeyed
			put(t, mem, r)
			time.Sleep(after)
			once(t, janitor.NewReconciler(mem, &says{verdict: janitor.NotHappened("no such charge")}, &janitor.ReconcilerOptions{Options: janitor.Options{Logger: quiet}}), 1)
			if got := load(t, mem, "key").State; got != want {
				t.Errorf("after %v it is %s, want %s", after, got, want)
			}
		}
	})
}

// A worker's operation that did not happen goes back to the workers, and counts as released.
func TestReconcilerGivesWorkBackToWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	r := record("key", retrysafe.StateUnknown, 0)
	r.Request = []byte("{}")
	put(t, w.mem, r)
	c := w.reconciler(&says{verdict: janitor.Tombstoned("cancelled")}, janitor.ReconcilerOptions{})
	once(t, c, 1)
	if got := load(t, w.mem, "key").State; got != retrysafe.StateAccepted || c.Stats().Released != 1 || w.saw(retrysafe.EventResolved) != 1 {
		t.Errorf("it is %s, counted %+v", got, c.Stats())
	}
}

// A question has a time limit, and no more than so many are open at once.
func TestReconcilerAsksWithinBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		const keys, workers = 20, 4
		for i := range keys {
			put(t, w.mem, record(key(i), retrysafe.StateUnknown, 0))
		}
		var open, most atomic.Int64
		c := w.reconciler(janitor.ResolverFunc(func(ctx context.Context, _ retrysafe.Record) (retrysafe.Evidence, error) {
			most.Store(max(most.Load(), open.Add(1)))
			defer open.Add(-1)
			<-ctx.Done()
			return retrysafe.Evidence{}, context.Cause(ctx)
		}), janitor.ReconcilerOptions{Timeout: 5 * time.Second, BreakAfter: keys + 1, Options: janitor.Options{Workers: workers}})
		began := time.Now()
		once(t, c, keys)
		if took := time.Since(began); took != 5*time.Second*keys/workers || most.Load() != workers {
			t.Errorf("it took %v with up to %d questions at once", took, most.Load())
		}
		if got := c.Stats(); got.ResolverErrors != keys || got.StillUnknown != keys {
			t.Errorf("counted %+v", got)
		}
	})
}

// A question that is broken off because the node stops is no try, but an answer that
// came is kept.
func TestReconcilerThatStopsForgetsNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	put(t, w.mem, record("broken off", retrysafe.StateUnknown, 0))
	put(t, w.mem, record("found", retrysafe.StateUnknown, 0))
	ctx, stop := context.WithCancel(t.Context())
	c := w.reconciler(janitor.ResolverFunc(func(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
		if r.Key == "found" {
			stop()
			return janitor.Happened(answer("paid"), ""), nil
		}
		<-ctx.Done()
		return retrysafe.Evidence{}, ctx.Err()
	}), janitor.ReconcilerOptions{})
	if _, err := c.RunOnce(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("RunOnce = %v", err)
	}
	if got := load(t, w.mem, "broken off"); got.State != retrysafe.StateUnknown || got.Inquiry.Tries != 0 {
		t.Errorf("it is %s after %d tries", got.State, got.Inquiry.Tries)
	}
	if got := load(t, w.mem, "found").State; got != retrysafe.StateCompleted {
		t.Errorf("what was found out is lost: it is %s", got)
	}
}

func TestReconcilerTellsAStoreThatFails(t *testing.T) {
	t.Parallel()
	for _, op := range []faultstore.Op{faultstore.List, faultstore.Swap} {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == op {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		resolver := &says{verdict: janitor.Happened(answer("paid"), "ch_1")}
		c := janitor.NewReconciler(w.fault, resolver, &janitor.ReconcilerOptions{Options: w.opts()})
		if n, err := c.RunOnce(t.Context()); n != 0 || !errors.Is(err, faultstore.ErrInjected) || c.Stats().Failures != 1 {
			t.Errorf("%s fails: RunOnce = %d, %v", op, n, err)
		}
		if resolver.n.Load() != 0 {
			t.Errorf("%s fails, and yet the resolver was asked", op)
		}
		w.is(t, retrysafe.StateUnknown)
	}
}

// Evidence that the store does not take is reported, and the record is asked about again.
func TestReconcilerTellsAStoreThatFailsAfterTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.N > 1 {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		resolver := &says{verdict: janitor.Happened(answer("paid"), "ch_1")}
		c := janitor.NewReconciler(w.fault, resolver, &janitor.ReconcilerOptions{Options: w.opts()})
		if n, err := c.RunOnce(t.Context()); n != 0 || !errors.Is(err, faultstore.ErrInjected) || resolver.n.Load() != 1 || c.Stats().Completed != 0 {
			t.Errorf("RunOnce = %d, %v, asked %d times", n, err, resolver.n.Load())
		}
		w.is(t, retrysafe.StateUnknown)
		w.fault.Plan(nil)
		time.Sleep(time.Minute)
		once(t, c, 1)
		w.replays(t, 201, "paid")
	})
}

// A node that stops takes no further questions: another node would have to wait until the
// time for them is over.
func TestReconcilerThatStopsClaimsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	for i := range 5 {
		put(t, w.mem, record(key(i), retrysafe.StateUnknown, 0))
	}
	ctx, stop := context.WithCancel(t.Context())
	resolver := &says{verdict: janitor.Happened(answer("paid"), "")}
	c := w.reconciler(meanwhile(resolver.verdict, stop), janitor.ReconcilerOptions{Options: janitor.Options{Workers: 1}})
	if n, err := c.RunOnce(ctx); n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("RunOnce = %d, %v", n, err)
	}
	once(t, w.reconciler(resolver, janitor.ReconcilerOptions{}), 4)
}

// If the store took so long that another node may have the question by now, it is not asked.
func TestReconcilerDoesNotAskWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				time.Sleep(10 * time.Second) // just as long as the question is taken for
			}
			return faultstore.None
		})
		o := janitor.ReconcilerOptions{Options: w.opts(), Timeout: 5 * time.Second}
		o.StoreTimeout = time.Hour
		resolver := &says{verdict: janitor.Tombstoned("cancelled")}
		c := janitor.NewReconciler(w.fault, resolver, &o)
		once(t, c, 0)
		if resolver.n.Load() != 0 || c.Stats().Overtaken != 1 || c.Stats().Asked != 0 {
			t.Errorf("it was asked %d times, counted %+v", resolver.n.Load(), c.Stats())
		}
	})
}

// What an operator has is not asked about, also when it is due.
func TestReconcilerLeavesTheDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	r := record(ref.Key, retrysafe.StateUnknown, 0)
	r.Inquiry.Dead = true
	put(t, w.mem, r)
	resolver := &says{verdict: janitor.Happened(answer("paid"), "ch_1")}
	once(t, w.reconciler(resolver, janitor.ReconcilerOptions{}), 0)
	if resolver.n.Load() != 0 {
		t.Error("it was asked about")
	}
}

func TestResolversByOperation(t *testing.T) {
	t.Parallel()
	payments, others := &says{verdict: janitor.Happened(answer("paid"), "")}, &says{verdict: janitor.StillUnknown("later")}
	ask := func(m janitor.Resolvers, operation string) retrysafe.Evidence {
		v, err := m.Resolve(t.Context(), retrysafe.Record{Operation: operation})
		must(t, err)
		return v
	}
	m := janitor.Resolvers{"POST /payments": payments, "": others}
	if got := ask(m, "POST /payments"); got.Finding != retrysafe.FindingHappened {
		t.Errorf("payments: %+v", got)
	}
	if got := ask(m, "POST /refunds"); got.Text != "later" {
		t.Errorf("refunds: %+v", got)
	}
	delete(m, "")
	if got := ask(m, "POST /refunds"); got.Finding != retrysafe.FindingUnknown || !strings.Contains(got.Text, "POST /refunds") {
		t.Errorf("refunds, without a resolver: %+v", got)
	}
}
