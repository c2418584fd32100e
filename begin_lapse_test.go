package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// crash forgets an execution as a killed process would: its heartbeat never
// comes, and its lease runs out.
func (b *bundle) crash(t *testing.T) {
	t.Helper()
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap && s.Write.State == retrysafe.StateInProgress && !s.Write.Overwrite {
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	time.Sleep(b.Policy().Lease + time.Second)
	b.fault.Plan(nil)
}

func TestW23_PlainReservationCountsAsStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.crash(t)
		b.refused(t, retrysafe.ErrUnknown)
		must(t, x.Release(t.Context(), nil)) // stop its heartbeat; it is its own Unknown still
	})
}

func TestW24_LapsedAttemptGoesWhereItsOwnPolicySays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy retrysafe.Policy
		check  func(t *testing.T, b *bundle)
	}{
		{"unprotected: quarantined", retrysafe.Policy{Reconcile: time.Hour}, func(t *testing.T, b *bundle) {
			if r := b.refused(t, retrysafe.ErrUnknown); r.RetryAfter != time.Minute || b.state(t).Reason == "" {
				t.Errorf("refused with %+v", r)
			}
			time.Sleep(24 * time.Hour) // it should have been looked into long ago
			if r := b.refused(t, retrysafe.ErrUnknown); r.RetryAfter != time.Second {
				t.Errorf("retry after %v, want 1s", r.RetryAfter)
			}
		}},
		{"unprotected: failed", retrysafe.Policy{Lapse: retrysafe.LapseFail}, func(t *testing.T, b *bundle) {
			_, out, err := b.Begin(t.Context(), call())
			if err != nil || out.Status != 500 || !out.Replayed {
				t.Errorf("Begin = %+v, %v; want the stored error", out, err)
			}
		}},
		{"keyed: rerun", retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}, func(t *testing.T, b *bundle) {
			x := b.begins(t)
			if x.Attempt() != 2 || !x.Checkpoint().IsZero() {
				t.Errorf("attempt %d from %v", x.Attempt(), x.Checkpoint())
			}
			must(t, x.Complete(t.Context(), answer("second")))
		}},
		{"in transaction: rerun", retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}, func(t *testing.T, b *bundle) {
			b.completeInTx(t, b.begins(t), "second")
		}},
		{"keyed: resume", retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume}, func(t *testing.T, b *bundle) {
			x := b.begins(t)
			if got := x.Checkpoint(); got.Phase != "charged" || string(got.Data) != "ch_1" {
				t.Errorf("resumed from %+v", got)
			}
			must(t, x.Complete(t.Context(), answer("second")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.policy)
				if c.policy.Effects == retrysafe.EffectsInTx {
					b.seenInTx(t)
				}
				x := b.begins(t)
				must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}))
				b.crash(t)
				c.check(t, b)
				if b.saw(retrysafe.EventLapsed)+b.saw(retrysafe.EventRetried) == 0 {
					t.Error("no event reports the lapse")
				}
				_ = x.Release(t.Context(), nil)
			})
		})
	}
}

func TestW25_ZombieLosesItsRecordAndIsToldToStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun})
		zombie := b.begins(t)
		b.crash(t)
		if err := zombie.Context().Err(); err == nil {
			t.Error("an owner whose lease ran out unrenewed is not told to stop")
		}
		heir := b.begins(t)
		must(t, heir.Complete(t.Context(), answer("heir's")))
		if err := zombie.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's completion = %v, want ErrLost", err)
		}
		if err := zombie.Save(t.Context(), retrysafe.Checkpoint{Phase: "late"}); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's checkpoint = %v, want ErrLost", err)
		}
		b.replays(t, "heir's")
		if b.saw(retrysafe.EventLost) != 1 {
			t.Error("no event reports the zombie's lost record")
		}
	})
}

func TestW25_HeartbeatKeepsASlowOperationAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		for range 20 {
			time.Sleep(2 * time.Second)
			b.refused(t, retrysafe.ErrInFlight)
		}
		must(t, x.Complete(t.Context(), answer("slow")))
		b.replays(t, "slow")
	})
}

func TestW25_HeartbeatWhoseReplyIsLostAdoptsItsOwnRevision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		time.Sleep(10 * time.Second)
		b.refused(t, retrysafe.ErrInFlight)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		time.Sleep(1100 * time.Millisecond) // one more beat, its reply lost too
		must(t, x.Complete(t.Context(), answer("kept")))
		b.replays(t, "kept")
		if b.saw(retrysafe.EventLost) != 0 {
			t.Error("an owner lost to itself")
		}
	})
}

func TestW26_OnlyTheStoresClockCounts(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, 4 * time.Minute, time.Hour, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(skew) }})
			e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Retention: time.Hour}})
			must(t, err)
			x, _, err := e.Begin(t.Context(), call())
			must(t, err)
			if _, _, err := e.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
				t.Errorf("skew %v: Begin = %v, want in flight", skew, err)
			}
			other := call()
			other.Key = "of a process that died"
			dead := retrysafe.Record{
				Ref: other.Ref, Operation: other.Operation, Fingerprint: other.Fingerprint, State: retrysafe.StateInProgress, Attempt: 1,
				Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected, Retain: time.Hour,
			}
			_, err = store.Create(t.Context(), retrysafe.Write{Record: dead, Term: time.Second})
			must(t, err)
			time.Sleep(2 * time.Second)
			if _, _, err := e.Begin(t.Context(), other); !errors.Is(err, retrysafe.ErrUnknown) {
				t.Errorf("skew %v: Begin on a lapsed attempt = %v, want unknown", skew, err)
			}
			must(t, x.Complete(t.Context(), answer("kept")))
			time.Sleep(59 * time.Minute)
			if _, out, err := e.Begin(t.Context(), call()); out == nil {
				t.Errorf("skew %v: not kept for its hour: %v", skew, err)
			}
			time.Sleep(2 * time.Minute)
			y, out, err := e.Begin(t.Context(), call())
			if skew > 5*time.Minute { // the store's clock alone is not believed
				if out == nil {
					t.Errorf("skew %v: an answer expired by a clock that may have been set: %v", skew, err)
				}
				return
			}
			if y == nil {
				t.Fatalf("skew %v: kept for longer than its hour: %v", skew, err)
			}
			must(t, y.Release(t.Context(), nil))
		})
	}
}

// The store's clock is set forward by more than the retention. Answers are replayed until
// their time is over by this node's clock too.
func TestW26_ClockSetForwardForgetsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Int64
		store := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(set.Load())) }})
		e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Retention: 24 * time.Hour}})
		must(t, err)
		runs := 0
		pay := func() retrysafe.Outcome {
			t.Helper()
			out, err := e.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				runs++
				return answer("paid"), nil
			})
			must(t, err)
			return out
		}
		pay()
		set.Store(int64(25 * time.Hour))
		if out := pay(); !out.Replayed || runs != 1 {
			t.Errorf("it ran %d times", runs)
		}
		if out, err := e.Peek(t.Context(), call()); err != nil || out == nil {
			t.Errorf("Peek finds %v, %v", out, err)
		}
		if _, err := e.Attach(t.Context(), call().Ref); err != nil {
			t.Errorf("Attach: %v", err)
		}
		time.Sleep(24 * time.Hour)
		if out := pay(); out.Replayed || runs != 2 {
			t.Errorf("after its retention by both clocks it ran %d times", runs)
		}
	})
}

func TestW28_PanicIsSettledByProofAndGoesOn(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]retrysafe.State{
		retrysafe.EffectsUnprotected: retrysafe.StateUnknown, retrysafe.EffectsKeyed: retrysafe.StateRetryable,
		retrysafe.EffectsInTx: retrysafe.StateUnknown, // no transaction took the answer: it may have committed by itself
	} {
		b := setup(t, retrysafe.Policy{Effects: effects})
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) { panic("boom") })
		}()
		if got := b.state(t); got.State != want || !strings.Contains(got.Reason, "boom") {
			t.Errorf("%s: a panic left %s (%s), want %s", effects, got.State, got.Reason, want)
		}
	}
}

func TestW28_GoexitIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runtime.Goexit()
			return answer("never"), nil
		})
	}()
	<-done
	if got := b.state(t).State; got != retrysafe.StateUnknown {
		t.Errorf("it is %s, want unknown", got)
	}
}

func TestW29_ClientThatHangsUpLosesNothing(t *testing.T) {
	t.Parallel()
	type traceKey struct{}
	b := setup(t, retrysafe.Policy{})
	ctx, hangUp := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "trace"))
	_, err := b.Do(ctx, call(), func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		hangUp()
		if ctx.Err() != nil || ctx.Value(traceKey{}) != "trace" {
			t.Errorf("the operation's context: err %v, trace %v", ctx.Err(), ctx.Value(traceKey{}))
		}
		return answer("kept"), nil
	})
	must(t, err)
	b.replays(t, "kept")
}

func TestW30_AttemptThatRunsTooLongIsSetAside(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]retrysafe.State{
		retrysafe.EffectsUnprotected: retrysafe.StateUnknown, retrysafe.EffectsKeyed: retrysafe.StateRetryable, retrysafe.EffectsInTx: retrysafe.StateRetryable,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Effects: effects, Lease: 10 * time.Second, MaxRun: time.Minute})
			if effects == retrysafe.EffectsInTx {
				b.seenInTx(t)
			}
			x := b.begins(t)
			time.Sleep(59 * time.Second)
			if x.Context().Err() != nil || b.state(t).State != retrysafe.StateInProgress {
				t.Error("set aside too early")
			}
			done := x.Context().Done()
			time.Sleep(2 * time.Second)
			<-done
			if cause := context.Cause(x.Context()); !errors.Is(cause, retrysafe.ErrTooLong) && !errors.Is(cause, context.DeadlineExceeded) {
				t.Errorf("cause = %v", cause)
			}
			if got := b.state(t); got.State != want {
				t.Errorf("%s: it became %s, want %s", effects, got.State, want)
			}
			if err := x.Save(t.Context(), retrysafe.Checkpoint{Phase: "late"}); !errors.Is(err, retrysafe.ErrTooLong) {
				t.Errorf("Save = %v", err)
			}
			// It comes to an answer after all, and its record has not moved.
			if effects == retrysafe.EffectsInTx {
				return // a transaction that comes too late is refused
			}
			must(t, x.Complete(t.Context(), answer("late")))
			b.replays(t, "late")
		})
	}
}

// An attempt that may commit by itself and runs too long proves nothing.
func TestW30_AttemptInTxThatWasNeverSeenInATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 10 * time.Second, MaxRun: time.Minute})
		b.begins(t)
		time.Sleep(61 * time.Second)
		if got := b.state(t).State; got != retrysafe.StateUnknown {
			t.Errorf("it became %s, want unknown", got)
		}
	})
}

// An attempt that has committed a transaction by itself and then runs too long proves
// nothing either, although its operation was seen in a transaction.
func TestW30_AttemptInTxThatHasEndedATransactionItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 10 * time.Second, MaxRun: time.Minute})
		b.seenInTx(t)
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, tx.Commit(t.Context()))
		if err := x.CompleteTx(t.Context(), tx, answer("too late")); !errors.Is(err, retrysafe.ErrTxDone) {
			t.Fatalf("CompleteTx in a transaction that has ended = %v", err)
		}
		time.Sleep(61 * time.Second)
		if got := b.state(t).State; got != retrysafe.StateUnknown {
			t.Errorf("it became %s, want unknown", got)
		}
	})
}

func TestW30_SettingAsideIsTriedUntilItIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 10 * time.Second, MaxRun: 10 * time.Second})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		time.Sleep(15 * time.Second)
		b.fault.Plan(nil)
		time.Sleep(5 * time.Second)
		if got := b.state(t).State; got != retrysafe.StateUnknown {
			t.Errorf("it is %s", got)
		}
		if err := x.Release(t.Context(), nil); err != nil {
			t.Errorf("its own proof is not taken: %v", err)
		}
	})
}

func TestW31_CrashBetweenEffectAndAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]int{}
		charge := func(x *retrysafe.Execution) { keys[x.DownstreamKey("charge")]++ }
		keyed := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun})
		dead := keyed.begins(t)
		charge(dead)
		keyed.crash(t)
		heir := keyed.begins(t)
		charge(heir)
		must(t, heir.Complete(t.Context(), answer("charged")))
		if len(keys) != 1 {
			t.Errorf("the provider saw %d keys, want one: %v", len(keys), keys)
		}
		_ = dead.Release(t.Context(), nil)

		unprotected := setup(t, retrysafe.Policy{})
		dead = unprotected.begins(t)
		unprotected.crash(t)
		for range 5 {
			unprotected.refused(t, retrysafe.ErrUnknown)
		}
		// The late owner of the same attempt may still settle its own Unknown.
		must(t, dead.Complete(t.Context(), answer("it did happen")))
		unprotected.replays(t, "it did happen")
	})
}

func TestW53_RetentionCountsFromTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Retention: time.Second, Lease: 3 * time.Second})
		x := b.begins(t)
		time.Sleep(time.Minute)
		if n, err := b.mem.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Fatalf("Purge = %d, %v; an attempt in flight never expires", n, err)
		}
		must(t, x.Complete(t.Context(), answer("kept")))
		b.replays(t, "kept")
		time.Sleep(2 * time.Second)
		if n, err := b.mem.Purge(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("Purge = %d, %v; want it forgotten", n, err)
		}
		must(t, b.begins(t).Release(t.Context(), nil))
	})
}

func TestExpiredKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Retention: time.Hour})
		gone, err := b.With(retrysafe.Policy{Retention: time.Hour, OnExpired: retrysafe.ExpiredGone})
		must(t, err)
		x := b.begins(t)
		x.Retain(2 * time.Hour)
		must(t, x.Complete(t.Context(), answer("old")))
		time.Sleep(90 * time.Minute)
		b.replays(t, "old") // kept for as long as Retain said
		time.Sleep(time.Hour)
		if _, _, err := gone.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrGone) {
			t.Errorf("Begin = %v, want ErrGone", err)
		}
		fresh := call()
		fresh.Fingerprint = print(2) // a new operation under an old key
		y, _, err := b.Begin(t.Context(), fresh)
		must(t, err)
		if r := y.Record(); y.Attempt() != 1 || r.Fingerprint != print(2) || !r.CreatedAt.Equal(r.UpdatedAt) {
			t.Errorf("it is not a new operation: %+v", r)
		}
		must(t, y.Complete(t.Context(), answer("new")))
	})
}

func TestW59_RecordOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	w := retrysafe.Write{Record: retrysafe.Record{Ref: ref, Version: retrysafe.RecordVersion + 1, State: retrysafe.StateRetryable, Owner: retrysafe.Owner{1}}, Term: time.Hour}
	_, err := b.mem.Create(t.Context(), w)
	must(t, err)
	if after := b.refused(t, retrysafe.ErrUnreadable).RetryAfter; after != time.Minute {
		t.Errorf("Retry-After is %v; a newer program may read it soon", after)
	}
	if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("Peek = %v", err)
	}
	if b.saw(retrysafe.EventUnreadable) != 2 {
		t.Error("no event reports the unreadable record")
	}
}

func TestAcceptedWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		_, err := b.mem.Create(t.Context(), retrysafe.Write{Record: retrysafe.Record{
			Ref: ref, Version: retrysafe.RecordVersion, State: retrysafe.StateAccepted, Fingerprint: print(1), Owner: retrysafe.Owner{1},
			Request: []byte("later"), Retain: time.Hour,
		}, Term: time.Minute})
		must(t, err)
		if r := b.refused(t, retrysafe.ErrAccepted); r.RetryAfter <= 0 {
			t.Error("no time to come back")
		}
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Errorf("Peek = %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := b.Attach(t.Context(), ref); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Errorf("Attach = %v", err)
		}
		_, out, err := b.Begin(t.Context(), call())
		if err != nil || out.Status != 408 {
			t.Errorf("Begin = %+v, %v; want the stored 408", out, err)
		}
	})
}

// A transaction that would run the operation again does not believe the store's clock
// alone either.
func TestW26_DoTxForgetsNoAnswerWhenTheClockIsSetForward(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Int64
		b := newBank(t, inTx)
		b.mem = memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(set.Load())) }})
		e, err := retrysafe.New(b.mem, &retrysafe.Options{Policy: inTx})
		must(t, err)
		b.Store, b.Engine = b.mem, e
		_, err = b.do(t.Context(), call())
		must(t, err)
		set.Store(int64(25 * time.Hour))
		if out, err := b.do(t.Context(), call()); err != nil || !out.Replayed {
			t.Errorf("a retry after the store's clock was set forward: %+v, %v", out, err)
		}
		b.booked(t, 1, 1)
		time.Sleep(24 * time.Hour)
		_, err = b.do(t.Context(), call())
		must(t, err)
		b.booked(t, 2, 2)
	})
}

// The lease of an execution is renewed whichever of the others end before it.
func TestHeartbeatsGoOnWhenOthersEnd(t *testing.T) {
	t.Parallel()
	for _, ending := range [][]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Lease: time.Minute})
			running := map[int]*retrysafe.Execution{}
			keyed := func(i int) retrysafe.Call {
				c := call()
				c.Ref.Key = fmt.Sprint("key ", i)
				return c
			}
			for i := range 3 {
				x, _, err := b.Begin(t.Context(), keyed(i))
				must(t, err)
				running[i] = x
			}
			for _, i := range ending {
				must(t, running[i].Complete(t.Context(), answer("early")))
				delete(running, i)
			}
			time.Sleep(3 * time.Minute)
			for i, x := range running {
				if _, _, err := b.Begin(t.Context(), keyed(i)); !errors.Is(err, retrysafe.ErrInFlight) {
					t.Errorf("after %v have ended, a retry of %d gets %v, want in flight", ending, i, err)
				}
				must(t, x.Complete(t.Context(), answer("late")))
			}
		})
	}
}

// An operation that was never seen to complete in a transaction may commit by itself: its
// lapsed attempt is not run again, whatever the policy says of lapsed attempts, and what
// was seen of another operation says nothing of it.
func TestLapsedAttemptInTxThatWasNeverSeenInATransaction(t *testing.T) {
	t.Parallel()
	for _, lapse := range []retrysafe.Lapse{retrysafe.LapseRerun, retrysafe.LapseResume} {
		synctest.Test(t, func(t *testing.T) {
			p := retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: lapse}
			b := setup(t, p)
			other := call()
			other.Key, other.Operation = "other", "POST /refunds"
			y, _, err := b.Begin(t.Context(), other)
			must(t, err)
			b.completeInTx(t, y, "refunded")
			restarted, err := retrysafe.New(b.fault, &retrysafe.Options{Policy: p}) // it knows what the store has noted
			must(t, err)
			b.Engine = restarted
			must(t, b.begins(t).Release(t.Context(), retrysafe.NotExecuted(errors.New("not sent"))))
			b.begins(t) // the claim of a released key is reserved with the same caution
			b.crash(t)
			b.refused(t, retrysafe.ErrUnknown)
		})
	}
}
