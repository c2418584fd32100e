package retrysafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

func TestW42_AnswerIsOfferedUntilItIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 10 * time.Second})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		start := time.Now()
		err := x.Complete(t.Context(), answer("durable later"))
		if !errors.Is(err, retrysafe.ErrUnsettled) || time.Since(start) > 4*time.Second {
			t.Fatalf("Complete = %v after %v, want ErrUnsettled", err, time.Since(start))
		}
		if _, err := x.Outcome(t.Context()); !errors.Is(err, retrysafe.ErrUnsettled) {
			t.Errorf("Outcome = %v; an answer that is not durable must not be shown", err)
		}
		if err := x.Complete(t.Context(), answer("another")); !errors.Is(err, retrysafe.ErrUnsettled) {
			t.Errorf("a second Complete = %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v with an answer pending", err)
		}
		time.Sleep(time.Minute) // the lease has lapsed meanwhile, and a retry is quarantining the key
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Write.State == retrysafe.StateCompleted {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		time.Sleep(2 * time.Second)
		b.refused(t, retrysafe.ErrUnknown)
		b.fault.Plan(nil)
		must(t, b.Drain(t.Context()))
		b.replays(t, "durable later")
		if b.saw(retrysafe.EventUnsettled) != 1 || b.saw(retrysafe.EventCompleted) != 1 {
			t.Errorf("observer saw %v", b.events)
		}
	})
}

func TestW42_AnswerThatNobodyTakesIsForgoneInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		if err := x.Complete(t.Context(), answer("lost")); !errors.Is(err, retrysafe.ErrUnsettled) {
			t.Fatal(err)
		}
		must(t, b.Drain(t.Context()))
		b.fault.Plan(nil)
		time.Sleep(time.Minute)
		b.refused(t, retrysafe.ErrUnknown)
		if b.saw(retrysafe.EventForgone) != 1 {
			t.Error("no event reports the lost answer")
		}
	})
}

func TestW42_CallerThatHasGoneStillGetsItsAnswerStored(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
	must(t, x.Complete(gone, answer("stored")))
	b.replays(t, "stored")
}

// A caller that has gone does not make the settlement ask a silent store without pause.
func TestSettlementOfACallerThatHasGonePausesBetweenTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		tries := 0
		b.fault.Plan(func(faultstore.Step) faultstore.Fault {
			if tries++; tries > 100 {
				return faultstore.None // without pauses time stands still here
			}
			return faultstore.LoseRequest
		})
		if err := x.Complete(gone, answer("later")); !errors.Is(err, retrysafe.ErrUnsettled) || tries > 20 {
			t.Errorf("Complete = %v after %d tries", err, tries)
		}
		b.fault.Plan(nil)
		must(t, b.Drain(t.Context()))
		b.replays(t, "later")
	})
}

func TestW43_SettlementWhoseReplyIsLostRecognisesItself(t *testing.T) {
	t.Parallel()
	for want, settle := range map[retrysafe.State]func(*retrysafe.Execution) error{
		retrysafe.StateCompleted: func(x *retrysafe.Execution) error { return x.Complete(t.Context(), answer("once")) },
		retrysafe.StateRetryable: func(x *retrysafe.Execution) error { return x.Release(t.Context(), errors.New("why")) },
		retrysafe.StateUnknown:   func(x *retrysafe.Execution) error { return x.Quarantine(t.Context(), errors.New("why")) },
	} {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		must(t, settle(x))
		if got := b.state(t).State; got != want || x.State() != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
}

func TestW44_ZombieNeverOverwrites(t *testing.T) {
	t.Parallel()
	operator := func(b *bundle, t *testing.T, state retrysafe.State) {
		t.Helper()
		r := b.state(t).Update()
		r.State, r.Term = state, time.Hour
		if state == retrysafe.StateCompleted {
			other := answer("operator's")
			r.Result = &other
		}
		_, err := b.mem.Swap(t.Context(), r)
		must(t, err)
	}
	for _, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired} {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		operator(b, t, state)
		before := b.state(t).Revision
		if err := x.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("%s: Complete = %v, want ErrLost", state, err)
		}
		if _, err := x.Outcome(t.Context()); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("%s: Outcome = %v, want ErrLost", state, err)
		}
		if got := b.state(t).Revision; got != before || b.saw(retrysafe.EventLost) != 1 {
			t.Errorf("%s: a zombie wrote", state)
		}
	}
	b := setup(t, retrysafe.Policy{Retention: time.Nanosecond})
	x := b.begins(t)
	operator(b, t, retrysafe.StateExpired)
	r := b.state(t).Update()
	r.Term = 0
	_, err := b.mem.Swap(t.Context(), r)
	must(t, err)
	if n, _ := b.mem.Purge(t.Context(), 10); n != 1 {
		t.Fatal("not purged")
	}
	if err := x.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
		t.Errorf("Complete without a record = %v, want ErrLost", err)
	}
}

// TestFenceNeverRepeats: a zombie of an earlier generation meets a new one under
// the same key, purged and created again in between.
func TestFenceNeverRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Retention: time.Second, Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun})
		zombie := b.begins(t)
		b.crash(t)
		must(t, b.begins(t).Complete(t.Context(), answer("first")))
		time.Sleep(2 * time.Second)
		if n, _ := b.mem.Purge(t.Context(), 10); n != 1 {
			t.Fatal("not purged")
		}
		heir := b.begins(t)
		if err := zombie.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("Complete = %v, want ErrLost", err)
		}
		must(t, heir.Complete(t.Context(), answer("second")))
		b.replays(t, "second")
	})
}

// Each execution has its heartbeat a third of its lease after it began, also if that of
// another one was due before.
func TestHeartbeatsComeInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 30 * time.Second})
		x := b.begins(t)
		time.Sleep(4 * time.Second)
		second := call()
		second.Key = "second"
		y, _, err := b.Begin(t.Context(), second)
		must(t, err)
		time.Sleep(11 * time.Second) // 15 s: one beat of each, at 10 s and 14 s
		for name, x := range map[string]*retrysafe.Execution{"first": x, "second": y} {
			r := x.Record()
			if got := r.UpdatedAt.Sub(r.CreatedAt); got != 10*time.Second {
				t.Errorf("%s: renewed after %v, want 10 s", name, got)
			}
			must(t, x.Complete(t.Context(), answer("paid")))
		}
	})
}

// An operation that has run too long is told so, also if it looks only then.
func TestCauseOfAContextThatLastedTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 10 * time.Second, MaxRun: time.Minute})
		x := b.begins(t)
		time.Sleep(2 * time.Minute)
		if got := context.Cause(x.Context()); !errors.Is(got, retrysafe.ErrTooLong) {
			t.Errorf("the cause is %v, want ErrTooLong", got)
		}
		must(t, x.Quarantine(t.Context(), nil))
		if b.saw(retrysafe.EventReleased) != 0 {
			t.Error("a quarantined attempt is reported as released")
		}
	})
}

func TestHeartbeatRevivesWhatASweeperGaveUpTooEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		r := b.state(t).Update()
		r.State, r.Term = retrysafe.StateUnknown, time.Minute
		_, err := b.mem.Swap(t.Context(), r)
		must(t, err)
		time.Sleep(2 * time.Second)
		b.refused(t, retrysafe.ErrInFlight)
		must(t, x.Complete(t.Context(), answer("alive")))
		b.replays(t, "alive")
	})
}

// A lease counts from when its renewal was sent: the store may have applied it at once,
// and then it ends for other processes before the reply has come.
func TestSlowRenewalDoesNotLengthenTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		began := time.Now()
		x := b.begins(t)
		var renewed time.Time
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.N == 1 {
				renewed = time.Now()
				time.Sleep(time.Second)
				return faultstore.None
			}
			return faultstore.LoseRequest
		})
		<-x.Context().Done()
		if renewed.IsZero() || time.Since(renewed) > 3*time.Second {
			t.Errorf("the operation went on for %v after its last renewal was sent, %v after it began", time.Since(renewed), time.Since(began))
		}
		b.fault.Plan(nil)
	})
}

func TestHeartbeatOfALostExecutionStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		done := x.Context().Done()
		r := b.state(t).Update()
		r.State, r.Term = retrysafe.StateRetryable, time.Minute
		_, err := b.mem.Swap(t.Context(), r)
		must(t, err)
		<-done
		if !errors.Is(context.Cause(x.Context()), retrysafe.ErrLost) {
			t.Errorf("cause = %v", context.Cause(x.Context()))
		}
		n := b.fault.Count(faultstore.Swap)
		time.Sleep(time.Minute)
		if got := b.fault.Count(faultstore.Swap); got != n {
			t.Errorf("%d more beats after the record was lost", got-n)
		}
	})
}

func TestStepsOfOneExecutionDoNotOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		hang := true
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if hang && s.Op == faultstore.Swap {
				hang = false
				return faultstore.Hang
			}
			return faultstore.None
		})
		go func() { _ = x.Save(t.Context(), retrysafe.Checkpoint{Phase: "slow"}) }()
		time.Sleep(100 * time.Millisecond) // the checkpoint hangs; a beat and a settlement come
		start := time.Now()
		must(t, x.Complete(t.Context(), answer("after")))
		if time.Since(start) < time.Second {
			t.Error("the settlement did not wait for the checkpoint")
		}
		b.replays(t, "after")
	})
}

func TestCheckpointsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "one", Data: []byte("1")}))
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Write.SetCheckpoint && s.Write.Checkpoint.Phase != "two" {
				t.Error("a heartbeat or a settlement writes the checkpoint again")
			}
			return faultstore.None
		})
		time.Sleep(10 * time.Second)
		if got := b.state(t).Checkpoint; got.Phase != "one" || string(got.Data) != "1" {
			t.Errorf("the checkpoint is %+v", got)
		}
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		if err := x.Save(t.Context(), retrysafe.Checkpoint{Phase: "two"}); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("Save without a store = %v", err)
		}
		b.fault.Plan(nil)
		must(t, x.Complete(t.Context(), answer("")))
	})
}

// The lease counts from its last renewal, by a heartbeat or a checkpoint: one that fails
// later ends nothing while the lease lasts.
func TestLateHeartbeatThatFailsDoesNotEndTheOperation(t *testing.T) {
	t.Parallel()
	for name, live := range map[string]func(t *testing.T, b *bundle, x *retrysafe.Execution){
		"after heartbeats": func(*testing.T, *bundle, *retrysafe.Execution) { time.Sleep(17500 * time.Millisecond) },
		"after a checkpoint": func(t *testing.T, b *bundle, x *retrysafe.Execution) {
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
			time.Sleep(1500 * time.Millisecond)
			b.fault.Plan(nil)
			must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "one"}))
			b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			time.Sleep(2 * time.Second) // to beyond the end of the first lease
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
			x := b.begins(t)
			live(t, b, x)
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
			time.Sleep(time.Second)
			if err := context.Cause(x.Context()); err != nil || b.saw(retrysafe.EventStoreError) == 0 {
				t.Errorf("%s: the operation's context has ended: %v; events %v", name, err, b.events)
			}
			b.fault.Plan(nil)
			must(t, x.Complete(t.Context(), answer("alive")))
			b.replays(t, "alive")
		})
	}
}

// Outcome waits for the step that is under way: it does not let a settlement in beside it.
func TestOutcomeWaitsForTheStepUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.Hang))
		saved := make(chan time.Time, 1)
		go func() {
			_ = x.Save(t.Context(), retrysafe.Checkpoint{Phase: "slow"})
			saved <- time.Now()
		}()
		synctest.Wait()
		if x.Untouched() {
			t.Error("it is untouched, and a step is under way")
		}
		if _, err := x.Outcome(t.Context()); !errors.Is(err, retrysafe.ErrOpen) {
			t.Errorf("Outcome = %v", err)
		}
		asked := time.Now()
		if done := <-saved; asked.Before(done) {
			t.Errorf("Outcome returned %v before the checkpoint was done", done.Sub(asked))
		}
		must(t, x.Complete(t.Context(), answer("after")))
	})
}

// What an execution says of itself before and after its settlement.
func TestExecutionTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for want, settle := range map[retrysafe.State]func(*retrysafe.Execution) error{
			retrysafe.StateCompleted: func(x *retrysafe.Execution) error { return x.Complete(t.Context(), answer("done")) },
			retrysafe.StateRetryable: func(x *retrysafe.Execution) error { return x.Release(t.Context(), nil) },
			retrysafe.StateUnknown:   func(x *retrysafe.Execution) error { return x.Quarantine(t.Context(), nil) },
		} {
			b := setup(t, retrysafe.Policy{Retention: 48 * time.Hour})
			x := b.begins(t)
			if _, ok := x.Expires(); ok || !x.Untouched() || x.State() != retrysafe.StateInProgress {
				t.Errorf("%s: before: expires %v, untouched %v, %s", want, ok, x.Untouched(), x.State())
			}
			must(t, settle(x))
			at, ok := x.Expires()
			if ok != (want != retrysafe.StateUnknown) || x.Untouched() || x.State() != want {
				t.Errorf("%s: after: expires %v, untouched %v, %s", want, ok, x.Untouched(), x.State())
			}
			if left := time.Until(at); ok && left != 48*time.Hour {
				t.Errorf("%s: it expires in %v", want, left)
			}
		}
		b := setup(t, keyed)
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), tx, answer("open")))
		if x.Untouched() {
			t.Error("it is untouched, and a transaction has its answer")
		}
		must(t, tx.Rollback(t.Context()))
		must(t, x.Release(t.Context(), nil))
		y := b.begins(t)
		tx, err = b.mem.Begin(t.Context())
		must(t, err)
		_, err = y.HandOver(t.Context(), tx, time.Hour)
		must(t, err)
		if y.Untouched() {
			t.Error("it is untouched, and a transaction has its key")
		}
		must(t, tx.Rollback(t.Context()))
		must(t, y.Release(t.Context(), nil))
	})
}
