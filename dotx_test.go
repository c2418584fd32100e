package retrysafe_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestDoTxIsOneCommit(t *testing.T) {
	t.Parallel()
	for name, finisher := range map[string]bool{"create and commit": false, "both in one": true} {
		b := newBank(t, inTx)
		want := int32(4) // begin, reserve, create, commit
		if finisher {
			b.finish = func(context.Context, *memstore.Tx, retrysafe.Write) error { return nil }
			want = 3
		}
		first, err := b.do(t.Context(), call())
		must(t, err)
		if got := b.steps.Load(); got != want || b.fault.Count(faultstore.Create)+b.fault.Count(faultstore.Swap) != 0 || b.fault.Count(faultstore.Load) != 1 {
			t.Errorf("%s: %d steps in the transaction, want %d and outside only the look whether the store is the engine's", name, got, want)
		}
		if first.Replayed || first.Attempt != 1 || time.Until(first.Expires) < 23*time.Hour {
			t.Errorf("%s: the first outcome is %+v", name, first)
		}
		for range 3 {
			again, err := b.do(t.Context(), call())
			must(t, err)
			if !again.Equal(&first.Result) || !again.Replayed || !again.Expires.Equal(first.Expires) {
				t.Errorf("%s: a retry got %+v, want %+v", name, again, first)
			}
		}
		b.replays(t, "booked") // and so does the other way in
		b.booked(t, 1, 1)
		if b.saw(retrysafe.EventReserved) != 1 || b.saw(retrysafe.EventCompleted) != 1 || b.saw(retrysafe.EventReplayed) != 4 || len(b.events) != 6 {
			t.Errorf("%s: observer saw %v", name, b.events)
		}
		other := call()
		other.Fingerprint = print(2)
		if _, err := b.do(t.Context(), other); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("%s: a different request got %v", name, err)
		}
		if r := b.state(t); r.Retain != 24*time.Hour || r.State != retrysafe.StateCompleted || r.Effects != retrysafe.EffectsInTx || r.Operation != call().Operation {
			t.Errorf("%s: the record is %+v", name, r)
		}
	}
}

func TestDoTxKeepsTheCallsRetention(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	short := call()
	short.Retention = time.Hour
	out, err := b.do(t.Context(), short)
	must(t, err)
	if left := time.Until(out.Expires); left > time.Hour || left < 59*time.Minute {
		t.Errorf("it expires in %v, want an hour", left)
	}
}

func TestDoTxAnswersWithAnyStatus(t *testing.T) {
	t.Parallel()
	b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, OnFailure: retrysafe.FailureRetry})
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 500}, nil
	}
	for range 2 { // as Do: what fn returns without an error is the answer
		if out, err := b.do(t.Context(), call()); err != nil || out.Status != 500 {
			t.Errorf("DoTx = %+v, %v", out, err)
		}
	}
	b.booked(t, 1, 1)
}

func TestDoTxOneOfManyRuns(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	release := make(chan struct{})
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
		<-release
		return answer("booked"), nil
	}
	var answers, conflicts atomic.Int32
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			out, err := b.do(t.Context(), call())
			var refused *retrysafe.RefusedError
			switch {
			case err == nil && string(out.Body) == "booked":
				answers.Add(1)
			case errors.Is(err, retrysafe.ErrInFlight) && errors.As(err, &refused) && refused.RetryAfter > 0:
				if conflicts.Add(1) == 100 {
					close(release)
				}
			default:
				t.Errorf("DoTx = %+v, %v", out, err)
			}
		})
	}
	wg.Wait()
	b.booked(t, 1, 1)
	if answers.Load()+conflicts.Load() != 200 || answers.Load() == 0 {
		t.Errorf("%d answers, %d conflicts", answers.Load(), conflicts.Load())
	}
}

func TestDoTxDuplicateBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		other := call()
		other.Fingerprint = print(2)
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			start := time.Now()
			for name, c := range map[string]retrysafe.Call{"the same": call(), "a different": other} {
				if _, err := b.do(t.Context(), c); !errors.Is(err, retrysafe.ErrInFlight) {
					t.Errorf("%s request: DoTx = %v, want in flight", name, err)
				}
				if _, _, err := b.Begin(t.Context(), c); !errors.Is(err, retrysafe.ErrInFlight) {
					t.Errorf("%s request: Begin = %v, want in flight", name, err)
				}
			}
			if waited := time.Since(start); waited > 0 {
				t.Errorf("they waited %v", waited)
			}
			return answer("booked"), nil
		}
		_, err := b.do(t.Context(), call())
		must(t, err)
		b.booked(t, 1, 1)
		if b.saw(retrysafe.EventInFlight) != 4 {
			t.Errorf("observer saw %v", b.events)
		}
	})
}

// A record that is being claimed is still seen as it was: a different request gets a
// mismatch, and no second call claims the record.
func TestDoTxDuplicateBesideAnOpenClaim(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*retrysafe.Write){
		func(w *retrysafe.Write) { w.State = retrysafe.StateRetryable },
		func(w *retrysafe.Write) { w.Lapse, w.Term = retrysafe.LapseRerun, 0 },
	} {
		b := newBank(t, inTx)
		b.with(t, change)
		other := call()
		other.Fingerprint = print(2)
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
				t.Errorf("the same request: DoTx = %v, want in flight", err)
			}
			if _, err := b.do(t.Context(), other); !errors.Is(err, retrysafe.ErrMismatch) {
				t.Errorf("a different request: DoTx = %v, want a mismatch", err)
			}
			return answer("booked"), nil
		}
		_, err := b.do(t.Context(), call())
		must(t, err)
		b.booked(t, 1, 1)
	}
}

// Concurrent replays of the same answer all get it.
func TestDoTxReplaysBesideATransactionThatOnlyLooks(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	_, err := b.do(t.Context(), call())
	must(t, err)
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	_, err = tx.Reserve(t.Context(), ref)
	must(t, err)
	if out, err := b.do(t.Context(), call()); err != nil || !out.Replayed {
		t.Errorf("DoTx = %+v, %v", out, err)
	}
	other := call()
	other.Fingerprint = print(2)
	if _, err := b.do(t.Context(), other); !errors.Is(err, retrysafe.ErrMismatch) {
		t.Errorf("DoTx = %v, want a mismatch", err)
	}
	must(t, tx.Rollback(t.Context()))
}

func TestDoTxWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, InFlight: retrysafe.InFlightWait, Wait: 5 * time.Second})
		took := 3 * time.Second
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(took)
			return answer("booked"), nil
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if out, err := b.do(t.Context(), call()); err != nil || string(out.Body) != "booked" {
					t.Errorf("DoTx = %+v, %v", out, err)
				}
			})
		}
		wg.Wait()
		b.booked(t, 1, 1)

		// No longer than the policy says,
		took = time.Minute
		slow := call()
		slow.Key = "slow"
		wg.Go(func() { b.do(t.Context(), slow) })
		synctest.Wait()
		start := time.Now()
		if _, err := b.do(t.Context(), slow); !errors.Is(err, retrysafe.ErrInFlight) || time.Since(start) < 5*time.Second || time.Since(start) > 6*time.Second {
			t.Errorf("DoTx = %v after %v", err, time.Since(start))
		}
		wg.Wait()

		// also for an attempt that has a record.
		key := call()
		key.Key = "begun"
		x, _, err := b.Begin(t.Context(), key)
		must(t, err)
		if _, err := b.do(t.Context(), key); !errors.Is(err, retrysafe.ErrInFlight) {
			t.Errorf("DoTx = %v", err)
		}
		wg.Go(func() {
			time.Sleep(time.Second)
			b.completeInTx(t, x, "begun")
		})
		if out, err := b.do(t.Context(), key); err != nil || string(out.Body) != "begun" {
			t.Errorf("DoTx = %+v, %v", out, err)
		}
		wg.Wait()
	})
}

func TestDoTxFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	failure := errors.New("no funds")
	for name, fail := range map[string]func() error{
		"error":  func() error { return failure },
		"panic":  func() error { panic(failure) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		for _, p := range []retrysafe.Policy{inTx, {Effects: retrysafe.EffectsInTx, OnFailure: retrysafe.FailureStore}} {
			b := newBank(t, p)
			b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
				return retrysafe.Result{Status: 500}, fail()
			}
			var out retrysafe.Outcome
			var err error
			var panicked any
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { panicked = recover() }()
				out, err = b.do(t.Context(), call())
			})
			wg.Wait()
			if name == "error" && !errors.Is(err, failure) || name == "panic" && panicked != failure || out.Status != 0 { //nolint:errorlint // the very value
				t.Errorf("%s: DoTx = %+v, %v, panic %v", name, out, err, panicked)
			}
			b.free(t)
			if b.saw(retrysafe.EventReleased) != 1 || b.saw(retrysafe.EventCompleted) != 0 || b.last.State != retrysafe.StateRetryable {
				t.Errorf("%s: observer saw %v, the last with %s", name, b.events, b.last.State)
			}
			b.fn = nil
			_, err = b.do(t.Context(), call())
			must(t, err)
			b.booked(t, 2, 1)
		}
	}
}

func TestDoTxFailedRollbackIsTold(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	failure, line := errors.New("no funds"), errors.New("connection is gone")
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) { return retrysafe.Result{}, failure }
	b.rollback = func(tx *memstore.Tx) error { return errors.Join(line, tx.Rollback(t.Context())) }
	if _, err := b.do(t.Context(), call()); !errors.Is(err, failure) || !errors.Is(err, line) {
		t.Errorf("DoTx = %v", err)
	}
	b.free(t)
}

// An fn that ends the transaction itself is told so, and no answer is given.
func TestDoTxCarelessFunctionIsTaught(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*memstore.Tx) error{
		"commits":    func(tx *memstore.Tx) error { return tx.Commit(t.Context()) },
		"rolls back": func(tx *memstore.Tx) error { return tx.Rollback(t.Context()) },
	} {
		for _, c := range []struct{ finisher, fails bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			b := newBank(t, inTx)
			if c.finisher {
				b.finish = func(context.Context, *memstore.Tx, retrysafe.Write) error { return nil }
			}
			released := false
			b.rollback = func(tx *memstore.Tx) error { released = true; return tx.Rollback(t.Context()) }
			b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Create && !released {
					t.Errorf("%s: the outcome is set aside while the store holds a connection for the transaction", name)
				}
				return faultstore.None
			})
			failure := errors.New("the mail was refused")
			b.fn = func(_ context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
				if err := end(tx); err != nil || !c.fails {
					return answer("booked"), err
				}
				return retrysafe.Result{}, failure
			}
			out, err := b.do(t.Context(), call())
			if c.fails && !errors.Is(err, failure) {
				t.Errorf("%s, and fails: DoTx = %v", name, err)
			}
			if err == nil || out.Status != 0 || !errors.Is(err, retrysafe.ErrTxDone) || !strings.Contains(err.Error(), "leave commit and rollback to DoTx") {
				t.Errorf("%s: DoTx = %+v, %v", name, out, err)
			}
			if retrysafe.IsNotExecuted(err) {
				t.Errorf("%s: %v claims that nothing happened", name, err)
			}
			if b.saw(retrysafe.EventCompleted) != 0 || b.saw(retrysafe.EventQuarantined) != 1 {
				t.Errorf("%s: observer saw %v", name, b.events)
			}
			b.refused(t, retrysafe.ErrUnknown)
			if r := b.state(t); r.Deadline.Sub(r.UpdatedAt) != b.Policy().Reconcile {
				t.Errorf("%s: it is looked into after %v", name, r.Deadline.Sub(r.UpdatedAt))
			}
		}
	}
}

// A function that panics after it has ended its transaction itself leaves the outcome
// unknown, also if it took longer than the store may take for its steps.
func TestDoTxPanicAfterACommitOfItsOwnIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		b.fn = func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			must(t, tx.Commit(ctx))
			time.Sleep(time.Minute)
			panic("after the commit")
		}
		func() {
			defer func() {
				if p := recover(); p != "after the commit" {
					t.Errorf("the caller gets the panic %v", p)
				}
			}()
			_, _ = b.do(t.Context(), call())
		}()
		b.refused(t, retrysafe.ErrUnknown)
		if b.saw(retrysafe.EventQuarantined) != 1 || b.saw(retrysafe.EventReleased) != 0 {
			t.Errorf("observer saw %v", b.events)
		}
	})
}

// refusing is a store that refuses every new record for one reason.
type refusing struct {
	retrysafe.Store
	why error
}

func (s refusing) Create(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, s.why
}

// A function ended its transaction itself, and the store refuses to set that aside: it is not
// asked again, and the attempt is reported as lost.
func TestDoTxCarelessFunctionWhoseOutcomeIsRefused(t *testing.T) {
	t.Parallel()
	for _, why := range []error{retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound, retrysafe.ErrUnreadable, retrysafe.ErrFull} {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, inTx)
			b.fn = func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
				return answer("booked"), tx.Commit(ctx)
			}
			e, err := retrysafe.New(refusing{b.mem, why}, &retrysafe.Options{Policy: inTx, Observer: b.bundle})
			must(t, err)
			b.Engine = e
			_, err = b.do(t.Context(), call())
			if !errors.Is(err, retrysafe.ErrTxDone) || !errors.Is(err, retrysafe.ErrLost) || errors.Is(err, retrysafe.ErrUnsettled) || b.saw(retrysafe.EventLost) != 1 {
				t.Errorf("%v: DoTx = %v; observer saw %v", why, err, b.events)
			}
		})
	}
}

// Each transaction that was begun is ended, and so is its context, whether or not the key
// could be taken in it.
func TestDoTxEndsEachTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		var begun []context.Context
		ended, tries := 0, 0
		b.begin = func(ctx context.Context) error {
			if begun = append(begun, ctx); len(begun) == 1 {
				return faultstore.ErrInjected
			}
			return nil
		}
		b.reserve = func(context.Context) error {
			if tries++; tries == 1 {
				return faultstore.ErrInjected
			}
			return nil
		}
		b.rollback = func(tx *memstore.Tx) error { ended++; return tx.Rollback(context.Background()) }
		_, err := b.do(t.Context(), call())
		must(t, err)
		if len(begun) != 3 || ended != 1 {
			t.Errorf("%d transactions, %d rolled back; want one that did not begin, one rolled back and one committed", len(begun), ended)
		}
		for i, ctx := range begun {
			if ctx.Err() == nil {
				t.Errorf("the context of transaction %d goes on", i+1)
			}
		}
	})
}

// A function that came back in time is committed, also if the commit ends after MaxRun: the
// transaction's context, by which drivers roll back, does not end meanwhile.
func TestDoTxCommitMayEndAfterMaxRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, changed(inTx, func(p *retrysafe.Policy) { p.MaxRun = time.Minute }))
		var ended <-chan struct{}
		b.begin = func(ctx context.Context) error { ended = ctx.Done(); return nil }
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(time.Minute - time.Millisecond)
			return answer("booked"), nil
		}
		b.commit = func(ctx context.Context, tx *memstore.Tx) error {
			time.Sleep(time.Second)
			select {
			case <-ended:
				t.Error("the transaction's context ends during the commit")
			default:
			}
			return tx.Commit(ctx)
		}
		_, err := b.do(t.Context(), call())
		must(t, err)
		b.booked(t, 1, 1)
	})
}

// What DoTx sees of the store closes the breaker: a read after reads that have failed, and a
// commit after writes that have.
func TestDoTxClosesTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		_, err := b.do(t.Context(), call())
		must(t, err)
		b.reserve = func(context.Context) error { return faultstore.ErrInjected }
		for range 5 {
			if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		b.reserve = nil
		time.Sleep(2 * time.Second)
		if out, err := b.do(t.Context(), call()); err != nil || !out.Replayed || !b.Healthy() {
			t.Errorf("reads: DoTx = %+v, %v; healthy: %v", out, err, b.Healthy())
		}
		fresh := call()
		fresh.Key = "fresh"
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Create {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		for range 5 {
			if _, _, err := b.Begin(t.Context(), fresh); !errors.Is(err, retrysafe.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if out, err := b.do(t.Context(), fresh); err != nil || out.Replayed || !b.Healthy() {
			t.Errorf("writes: DoTx = %+v, %v; healthy: %v", out, err, b.Healthy())
		}
	})
}

// A function ended its transaction itself, and that cannot be set aside: the caller is told,
// and so is the observer.
func TestDoTxCarelessFunctionWhoseOutcomeIsNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		b.fn = func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			return answer("booked"), tx.Commit(ctx)
		}
		start := time.Now()
		_, err := b.do(t.Context(), call())
		if !errors.Is(err, retrysafe.ErrTxDone) || !errors.Is(err, retrysafe.ErrUnsettled) || retrysafe.IsNotExecuted(err) || b.saw(retrysafe.EventForgone) != 1 || time.Since(start) < time.Second {
			t.Errorf("with a store that fails, DoTx = %v after %v; observer saw %v", err, time.Since(start), b.events)
		}
	})
	b := newBank(t, inTx)
	b.fn = func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
		must(t, tx.Commit(ctx))
		x := b.begins(t)
		return answer("booked"), x.Release(ctx, nil)
	}
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrTxDone) || !errors.Is(err, retrysafe.ErrLost) || b.saw(retrysafe.EventLost) != 1 {
		t.Errorf("with another call's record, DoTx = %v; observer saw %v", err, b.events)
	}
}

func TestDoTxWantsInTx(t *testing.T) {
	t.Parallel()
	for _, effects := range []retrysafe.Effects{retrysafe.EffectsUnprotected, retrysafe.EffectsKeyed} {
		b := newBank(t, retrysafe.Policy{Effects: effects})
		_, err := b.do(t.Context(), call())
		if !errors.Is(err, retrysafe.ErrPolicy) || !strings.Contains(err.Error(), effects.String()) || !strings.Contains(err.Error(), "Effects: EffectsInTx") {
			t.Errorf("DoTx = %v", err)
		}
		b.booked(t, 0, 0)
		if b.steps.Load() != 0 {
			t.Error("the store was touched")
		}
	}
}

func withKey(key string) retrysafe.Call {
	c := call()
	c.Key = key
	return c
}

// An engine finds out once whether what DoTx commits is in its own store.
func TestDoTxLooksOnceForWhatItCommitted(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest)) // the look fails, which proves nothing
	for range 2 {
		if _, err := b.do(t.Context(), withKey(fmt.Sprint(b.runs.Load()))); err != nil {
			t.Errorf("DoTx beside a store that does not answer = %v", err)
		}
	}
	b.fault.Plan(nil)
	before := b.fault.Count(faultstore.Load)
	for range 5 {
		_, err := b.do(t.Context(), withKey(fmt.Sprint(b.runs.Load())))
		must(t, err)
	}
	if n := b.fault.Count(faultstore.Load) - before; n != 1 {
		t.Errorf("the engine looked %d times, want once it had found what was committed", n)
	}
}

// A store that is not the engine's is reported by the first call. The answer is not lost: it
// is committed with what the function wrote.
func TestDoTxWithAnotherStore(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.mem = memstore.New(nil)
	for _, key := range []string{"one", "two"} {
		_, err := b.do(t.Context(), withKey(key))
		if !errors.Is(err, retrysafe.ErrPolicy) || retrysafe.IsNotExecuted(err) || !strings.Contains(err.Error(), "give DoTx the store that the engine was made with") {
			t.Errorf("DoTx = %v", err)
		}
		if out, err := b.do(t.Context(), withKey(key)); err != nil || !out.Replayed || string(out.Body) != "booked" {
			t.Errorf("a retry got %+v, %v", out, err)
		}
	}
	b.booked(t, 2, 2)
}

// What the engine's store has of another attempt under the key is no sign that DoTx was given
// that store: the next call is looked up, and reported.
func TestDoTxWithAnotherStoreWhoseKeyIsKnown(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	_, err := b.do(t.Context(), withKey("one"))
	must(t, err)
	b.mem = memstore.New(nil)
	e, err := retrysafe.New(b.fault, &retrysafe.Options{Policy: inTx})
	must(t, err)
	b.Engine = e
	if _, err := b.do(t.Context(), withKey("one")); err != nil {
		t.Errorf("DoTx with a key that both stores have = %v", err)
	}
	if _, err := b.do(t.Context(), withKey("two")); !errors.Is(err, retrysafe.ErrPolicy) {
		t.Errorf("DoTx with another store = %v", err)
	}
}

// An operation that takes longer than a step of the store may is looked up all the same.
func TestDoTxWithAnotherStoreAndASlowOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		b.mem = memstore.New(nil)
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(5 * time.Second)
			return answer("booked"), nil
		}
		if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrPolicy) {
			t.Errorf("DoTx = %v", err)
		}
	})
}

// Each store is looked at by itself: that one call was given the right one says nothing of
// another call.
func TestDoTxWithAnotherStoreAfterItsOwn(t *testing.T) {
	t.Parallel()
	own, other := memstore.New(nil), memstore.New(nil)
	counted := faultstore.New(own)
	e, err := retrysafe.New(counted, &retrysafe.Options{Policy: inTx})
	must(t, err)
	do := func(s *memstore.Store, key string) error {
		_, err := retrysafe.DoTx(t.Context(), e, s, withKey(key), func(context.Context, *memstore.Tx) (retrysafe.Result, error) { return answer("booked"), nil })
		return err
	}
	for i := range 3 {
		must(t, do(own, fmt.Sprint("own ", i)))
	}
	if n := counted.Count(faultstore.Load); n != 1 {
		t.Errorf("the engine looked %d times at its own store behind another value, want once", n)
	}
	for range 2 {
		if err := do(other, rand.Text()); !errors.Is(err, retrysafe.ErrPolicy) {
			t.Errorf("DoTx with another store = %v", err)
		}
	}
	e, err = retrysafe.New(own, &retrysafe.Options{Policy: inTx})
	must(t, err)
	must(t, do(own, "the engine's own value"))
}

// An answer that is kept for a moment only may have been purged before the engine looks.
func TestDoTxWithAnAnswerThatIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.mem = memstore.New(nil)
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
		time.Sleep(20 * time.Millisecond)
		return answer("booked"), nil
	}
	short := call()
	short.Retention = 30 * time.Millisecond
	if _, err := b.do(t.Context(), short); err != nil {
		t.Errorf("DoTx = %v", err)
	}
}

func TestDoTxChecksTheCall(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	for _, c := range []retrysafe.Call{{Ref: retrysafe.Ref{Key: "k"}}, {Ref: retrysafe.Ref{Scope: "s"}}, {Ref: ref, Retention: -1}} {
		if _, err := b.do(t.Context(), c); !errors.Is(err, retrysafe.ErrInvalidCall) {
			t.Errorf("DoTx(%v) = %v", c.Ref, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.do(gone, call()); !errors.Is(err, context.Canceled) {
		t.Errorf("DoTx of a client that has gone = %v", err)
	}
	if b.steps.Load() != 0 {
		t.Error("the store was touched")
	}
	leaving, cancel := context.WithCancel(t.Context())
	b.reserve = func(context.Context) error { cancel(); return nil }
	if _, err := b.do(leaving, call()); !errors.Is(err, context.Canceled) {
		t.Errorf("DoTx of a client that goes = %v", err)
	}
	b.booked(t, 0, 0)
	b.free(t)
}

type valueKey struct{}

// A client that hangs up stops neither the operation nor the commit.
func TestDoTxOutlivesTheClient(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "v"))
	b.fn = func(ctx context.Context, _ *memstore.Tx) (retrysafe.Result, error) {
		cancel()
		if ctx.Err() != nil || ctx.Value(valueKey{}) != "v" {
			t.Errorf("fn runs in a context with %v, %v", ctx.Err(), ctx.Value(valueKey{}))
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("nothing bounds fn")
		}
		return answer("booked"), nil
	}
	b.commit = func(ctx context.Context, tx *memstore.Tx) error {
		if ctx.Err() != nil {
			t.Errorf("the commit runs in a context with %v", ctx.Err())
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("nothing bounds the commit")
		}
		return tx.Commit(ctx)
	}
	if _, err := b.do(ctx, call()); err != nil {
		t.Error(err)
	}
	b.booked(t, 1, 1)
}

func TestDoTxMaxRunRollsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, MaxRun: time.Minute})
		for _, careful := range []bool{true, false} {
			b.fn = func(ctx context.Context, _ *memstore.Tx) (retrysafe.Result, error) {
				if careful {
					<-ctx.Done()
					return retrysafe.Result{}, ctx.Err()
				}
				time.Sleep(2 * time.Minute)
				return answer("late"), nil
			}
			if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrTooLong) || careful && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("DoTx = %v, want too long", err)
			}
			b.free(t)
		}
		b.booked(t, 2, 0)
	})
}

func TestDoTxStoreDownRefusesAndHeals(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fail := func(context.Context) error { return faultstore.ErrInjected }
	for name, ruin := range map[string]func(*bank){
		"begin fails":   func(b *bank) { b.begin = fail },
		"reserve fails": func(b *bank) { b.reserve = fail },
		"begin hangs":   func(b *bank) { b.begin = hang },
		"reserve hangs": func(b *bank) { b.reserve = hang },
		"late answer": func(b *bank) {
			b.reserve = func(context.Context) error { time.Sleep(2 * time.Second); return retrysafe.ErrBusy }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, inTx)
				ruin(b)
				for range 10 {
					start := time.Now()
					_, err := b.do(t.Context(), call())
					var refused *retrysafe.RefusedError
					if !errors.Is(err, retrysafe.ErrUnavailable) || !errors.As(err, &refused) || refused.RetryAfter <= 0 || time.Since(start) > 2*time.Second {
						t.Fatalf("DoTx = %v after %v", err, time.Since(start))
					}
				}
				if b.Healthy() || b.saw(retrysafe.EventStoreError) == 0 {
					t.Error("healthy with a store that is down")
				}
				b.begin, b.reserve = nil, nil
				time.Sleep(2 * time.Second)
				_, err := b.do(t.Context(), call())
				must(t, err)
				b.booked(t, 1, 1)
				if !b.Healthy() {
					t.Error("not healthy with a store that is back")
				}
			})
		})
	}
}

func TestDoTxTransientFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	n := 0
	b.reserve = func(context.Context) error {
		if n++; n < 3 {
			return faultstore.ErrInjected
		}
		return nil
	}
	_, err := b.do(t.Context(), call())
	must(t, err)
	b.booked(t, 1, 1)
}

func TestDoTxWithoutRandomnessRunsNothing(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	e, err := retrysafe.New(mem, &retrysafe.Options{Policy: inTx, Rand: strings.NewReader("short")})
	must(t, err)
	if _, err := retrysafe.DoTx(t.Context(), e, mem, call(), func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
		t.Error("it ran")
		return retrysafe.Result{}, nil
	}); !errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("DoTx = %v", err)
	}
}

func TestDoTxFullStoreRollsBack(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.store = func(retrysafe.Write) error { return retrysafe.ErrFull }
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnavailable) || !errors.Is(err, retrysafe.ErrFull) {
		t.Errorf("DoTx = %v", err)
	}
	b.booked(t, 1, 0)
	b.free(t)
}

// Reservation, business write and answer are one transaction.
func ExampleDoTx() {
	store := memstore.New(nil)
	engine, _ := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	balance := 100
	for range 2 {
		out, err := retrysafe.DoTx(context.Background(), engine, store, call, func(_ context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			tx.OnCommit(func() { balance -= 30 }) // with SQL: tx.ExecContext(ctx, "UPDATE ...")
			return retrysafe.Result{Status: 201, Body: []byte("booked")}, nil
		})
		fmt.Println(out.Status, string(out.Body), out.Replayed, balance, err)
	}
	// Output:
	// 201 booked false 70 <nil>
	// 201 booked true 70 <nil>
}

// Waiting helps with an attempt in flight only: any other refusal comes at once.
func TestDoTxDoesNotWaitForWhatWillNotChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, InFlight: retrysafe.InFlightWait, Wait: time.Minute})
		_, err := b.do(t.Context(), call())
		must(t, err)
		other := call()
		other.Fingerprint = print(2)
		unknown := call()
		unknown.Key = "unknown"
		x, _, err := b.Begin(t.Context(), unknown)
		must(t, err)
		must(t, x.Quarantine(t.Context(), errors.New("timed out")))
		start := time.Now()
		if _, err := b.do(t.Context(), other); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another request: DoTx = %v", err)
		}
		if _, err := b.do(t.Context(), unknown); !errors.Is(err, retrysafe.ErrUnknown) {
			t.Errorf("an unknown outcome: DoTx = %v", err)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("they waited %v", waited)
		}
		b.booked(t, 1, 1)
	})
}

// How long operations take is known from those in transactions, too: a retry is told to come
// back when the first one will be done.
func TestDoTxTellsHowLongItTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(5 * time.Second)
			return answer("booked"), nil
		}
		_, err := b.do(t.Context(), call())
		must(t, err)
		next := call()
		next.Key = "next"
		x, _, err := b.Begin(t.Context(), next)
		must(t, err)
		var refused *retrysafe.RefusedError
		if _, err := b.do(t.Context(), next); !errors.As(err, &refused) || refused.RetryAfter != 5*time.Second {
			t.Errorf("DoTx = %v, want a Retry-After of 5 s", err)
		}
		must(t, x.Release(t.Context(), nil))
	})
}
