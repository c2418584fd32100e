package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/janitor"
)

// Of many nodes one at a time asks about a record, however long the answer takes.
func TestOneNodeAtATimeAsks(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		const keys, nodes, passes = 40, 4, 3
		for i := range keys {
			put(t, store, record(key(i), retrysafe.StateUnknown, 0))
		}
		var mu sync.Mutex
		open, asked := map[string]int{}, map[string]int{}
		resolver := janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			mu.Lock()
			open[r.Key]++
			asked[r.Key]++
			if open[r.Key] > 1 {
				t.Errorf("two nodes ask about %s at once", r.Key)
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			open[r.Key]--
			return janitor.StillUnknown("later"), nil
		})
		var wg sync.WaitGroup
		for range nodes {
			c := janitor.NewReconciler(store, resolver, &janitor.ReconcilerOptions{Options: janitor.Options{Logger: quiet, StoreTimeout: time.Minute}, Pause: time.Hour, Timeout: time.Minute})
			wg.Go(func() {
				for range passes {
					if _, err := c.RunOnce(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for i := range keys {
			if got := load(t, store, key(i)); asked[key(i)] != 1 || got.Inquiry.Tries != 1 || len(got.Inquiry.Notes) != 1 {
				t.Errorf("%s was asked about %d times: %+v", key(i), asked[key(i)], got.Inquiry)
			}
		}
	})
}

// A node that is killed while it asks: the record is due again when the time for the
// question is over, no try is counted, and the settling time does not begin anew.
func TestQuestionOfADeadNodeIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsKeyed)
		began := time.Now()
		ctx, kill := context.WithCancel(t.Context())
		time.Sleep(40 * time.Second)
		_, _ = w.reconciler(janitor.ResolverFunc(func(ctx context.Context, _ retrysafe.Record) (retrysafe.Evidence, error) {
			kill()
			<-ctx.Done()
			return retrysafe.Evidence{}, ctx.Err()
		}), janitor.ReconcilerOptions{}).RunOnce(ctx)
		r := w.record(t)
		if r.State != retrysafe.StateUnknown || r.Inquiry.Tries != 0 || !r.UnknownSince().Equal(began) {
			t.Errorf("it is %s since %v, began %v: %+v", r.State, r.UnknownSince(), began, r.Inquiry)
		}
		resolver := &says{verdict: janitor.NotHappened("no such charge")}
		other := w.reconciler(resolver, janitor.ReconcilerOptions{})
		once(t, other, 0) // the question is still the first one's
		time.Sleep(25 * time.Second)
		once(t, other, 1) // more than a minute after it became unknown
		w.is(t, retrysafe.StateRetryable)
		if r := w.record(t); resolver.n.Load() != 1 || len(r.Inquiry.Notes) != 1 {
			t.Errorf("asked %d times, noted %+v", resolver.n.Load(), r.Inquiry.Notes)
		}
	})
}

// A resolver gets the record as it was before the question was taken.
func TestResolverSeesNoClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		w.unknown(t, retrysafe.EffectsUnprotected)
		was := w.record(t)
		time.Sleep(time.Minute)
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				time.Sleep(time.Second) // so that it is taken later than it was listed
			}
			return faultstore.None
		})
		c := janitor.NewReconciler(w.fault, janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			if !r.UpdatedAt.Equal(was.UpdatedAt) || len(r.Inquiry.Notes) != 0 || !r.ReadAt.Equal(time.Now()) || r.UnknownSince() != was.UpdatedAt {
				t.Errorf("the resolver gets %+v", r)
			}
			claimed := w.record(t) // for longer than the question may take, and by a name of its own
			if claim := claimed.Inquiry.Notes; time.Until(claimed.Deadline) != 15*time.Second || len(claim) != 1 || len(strings.Fields(claim[0].ID)) != 3 {
				t.Errorf("claimed for %v, with %+v", time.Until(claimed.Deadline), claim)
			}
			v := janitor.StillUnknown("later")
			v.By = "resolver of its own name"
			return v, nil
		}), &janitor.ReconcilerOptions{Options: w.opts()})
		once(t, c, 1)
		if n := w.record(t).Inquiry.Notes; len(n) != 1 || n[0].By != "resolver of its own name" {
			t.Errorf("noted %+v", n)
		}
	})
}

// A resolver that fails every time is given a pause. What is due meanwhile counts no try
// and becomes no dead letter; one question decides whether it goes on.
func TestBreakerSparesAResolverThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		const keys = 20
		for i := range keys {
			put(t, w.mem, record(key(i), retrysafe.StateUnknown, 0))
		}
		var down atomic.Bool
		var asked atomic.Int64
		down.Store(true)
		half := func() float64 { return 0.5 }
		c := w.reconciler(janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
			asked.Add(1)
			if down.Load() {
				return retrysafe.Evidence{}, errors.New("503")
			}
			return janitor.Happened(answer("paid"), "ch_1"), nil
		}), janitor.ReconcilerOptions{Tries: 2, Options: janitor.Options{Workers: 1, Rand: half}})
		once(t, c, 5)
		if s := c.Stats(); asked.Load() != 5 || s.Skipped != keys-5 || s.Open != 1 || s.ResolverErrors != 5 {
			t.Errorf("asked %d times, counted %+v", asked.Load(), s)
		}
		pause := 10 * time.Second
		for probe := range int64(8) { // each pause ends with one question
			once(t, c, 0)
			time.Sleep(pause - time.Nanosecond)
			once(t, c, 0)
			time.Sleep(time.Nanosecond)
			once(t, c, 1)
			if got := asked.Load(); got != 6+probe {
				t.Fatalf("after %d pauses it was asked %d times", probe+1, got)
			}
			pause = min(2*pause, 5*time.Minute)
		}
		down.Store(false)
		time.Sleep(pause)
		_, err := c.RunOnce(t.Context())
		must(t, err)
		if s := c.Stats(); s.Open != 0 || s.Completed == 0 {
			t.Errorf("counted %+v", s)
		}
		asked.Store(0)
		runFor(t, 24*time.Hour, c)
		dead := 0
		for i := range keys {
			if r := load(t, w.mem, key(i)); r.State != retrysafe.StateCompleted {
				if !r.Inquiry.Dead || r.Inquiry.Tries != 2 {
					t.Errorf("%s is %s, %+v", key(i), r.State, r.Inquiry)
				}
				dead++
			}
		}
		if s := c.Stats(); dead > 6 || int(s.Dead) != dead {
			t.Errorf("%d are dead letters; counted %+v", dead, s)
		}
	})
}

// If the question that decides cannot be claimed, the next one decides: the resolver is not
// left in its pause for ever.
func TestBreakerOutlivesAClaimThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		put(t, w.mem, record("key", retrysafe.StateUnknown, 0))
		resolver := &says{err: errors.New("503")}
		c := janitor.NewReconciler(w.fault, resolver, &janitor.ReconcilerOptions{Options: w.opts(), BreakAfter: 1})
		once(t, c, 1)
		time.Sleep(time.Hour)
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		if n, err := c.RunOnce(t.Context()); n != 0 || err == nil {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
		w.fault.Plan(nil)
		once(t, c, 1)
		if n := resolver.n.Load(); n != 2 {
			t.Errorf("the resolver was asked %d times", n)
		}
	})
}

// Each resolver of several has a breaker of its own, and operations of one resolver
// share it.
func TestBreakerIsOneForEachResolver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	bad, good := &says{err: errors.New("503")}, &says{verdict: janitor.Happened(answer("paid"), "")}
	for i := range 30 {
		r := record(key(i), retrysafe.StateUnknown, 0)
		r.Operation = fmt.Sprintf("operation %d", i%3)
		put(t, w.mem, r)
	}
	c := w.reconciler(janitor.Resolvers{"operation 0": bad, "operation 1": bad, "operation 2": good}, janitor.ReconcilerOptions{Options: janitor.Options{Workers: 1}})
	once(t, c, 15)
	if s := c.Stats(); bad.n.Load() != 5 || good.n.Load() != 10 || s.Open != 1 || s.Skipped != 15 {
		t.Errorf("asked %d and %d times, counted %+v", bad.n.Load(), good.n.Load(), s)
	}
}
