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

// Once a defect: do stores fn's answer although the transaction that held it rolled back.
func TestDoRolledBackTxIsNotCompleted(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		var l ledger
		out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := b.mem.Begin(ctx)
			must(t, err)
			tx.OnCommit(l.add)
			if refused { // CompleteTx itself is refused: it rolls back, and its error is ignored
				other, err := b.mem.Begin(ctx)
				must(t, err)
				_, _ = other.Reserve(ctx, ref)
				_ = x.CompleteTx(ctx, tx, answer("paid"))
				must(t, other.Rollback(ctx))
			} else { // COMMIT fails, and its error is ignored
				_ = x.CompleteTx(ctx, tx, answer("paid"))
				_ = tx.Rollback(ctx)
			}
			return answer("paid"), nil
		})
		if err == nil || b.state(t).State == retrysafe.StateCompleted {
			t.Errorf("refused=%v: Do = %q, %v; record %s, %d effects: an answer without its effect", refused, out.Body, err, b.state(t).State, l.rows)
		}
	}
}

// Once a defect: an adopted orphan of a Resume claim loses its checkpoint.
func TestAdoptKeepsCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume})
		x := b.begins(t)
		must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}))
		b.crash(t)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				return faultstore.LoseReply
			}
			return faultstore.None
		})
		b.refused(t, retrysafe.ErrUnavailable)
		if got := b.state(t); got.Attempt != 2 || got.Checkpoint.Phase != "charged" {
			t.Fatalf("the test wants a resumed claim: %+v", got)
		}
		b.fault.Plan(nil)
		if got := b.begins(t).Checkpoint(); got.Phase != "charged" {
			t.Errorf("checkpoint %+v: the next owner starts from the beginning", got)
		}
	})
}

// Once a defect: a second CompleteTx after a commit that was told to have failed.
func TestCompleteTxAfterAmbiguousCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	var l ledger
	out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		var err error
		for range 2 { // retries on a lost connection, as database code does
			tx, e := b.mem.Begin(ctx)
			must(t, e)
			tx.OnCommit(l.add)
			if err = x.CompleteTx(ctx, tx, answer("committed")); err != nil {
				break
			}
			must(t, tx.Commit(ctx)) // took place; the caller is told otherwise
		}
		return retrysafe.Result{}, err
	})
	if err != nil || string(out.Body) != "committed" || b.saw(retrysafe.EventLost) != 0 || l.rows != 1 {
		t.Errorf("Do = %q, %v; %d lost, %d rows", out.Body, err, b.saw(retrysafe.EventLost), l.rows)
	}
}

// Once a defect: an orphan is forgotten when a sweeper moves it at the same moment.
func TestOrphanSurvivesASweeper(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	b.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
	b.refused(t, retrysafe.ErrUnavailable)
	swept := false
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap && !swept {
			swept = true
			r := b.state(t).Update()
			r.State, r.Reason, r.Term = retrysafe.StateUnknown, "lease lapsed", time.Second
			_, err := b.mem.Swap(context.Background(), r)
			must(t, err)
		}
		return faultstore.None
	})
	x, _, err := b.Begin(t.Context(), call())
	if x == nil {
		t.Errorf("Begin = %v: it never started, and is set aside for ever", err)
	}
	b.fault.Plan(nil)
}

// Once a defect: a reservation whose commit hangs is met by its own second try,
// which is told that the key is busy. When the commit comes through, the engine no
// longer knows that it never started.
func TestReservationThatHangsIsFoundToBeOurs(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	first := true
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op != faultstore.Create || !first {
			return faultstore.None
		}
		first = false
		_, err := tx.Create(t.Context(), s.Write)
		must(t, err)
		return faultstore.LoseRequest
	})
	b.refused(t, retrysafe.ErrInFlight)
	must(t, tx.Commit(t.Context()))
	if x, _, err := b.Begin(t.Context(), call()); x == nil {
		t.Errorf("Begin = %v, want the reservation that never started", err)
	}
}

// Once a defect: a late owner erases what a reconciler wrote.
func TestLateOwnerKeepsProviderRef(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	r := b.state(t).Update()
	r.State, r.ProviderRef, r.Term = retrysafe.StateUnknown, "ch_1", time.Minute
	_, err := b.mem.Swap(t.Context(), r)
	must(t, err)
	must(t, x.Complete(t.Context(), answer("late")))
	if got := b.state(t); got.ProviderRef != "ch_1" {
		t.Errorf("ProviderRef is %q", got.ProviderRef)
	}
}

var _ = errors.Is

// Once a defect: do throws away the answer of an attempt that ran too long, though its record could still take it.
func TestDoStoresALateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		out, err := b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			time.Sleep(b.Policy().MaxRun + time.Second)
			return answer("late"), nil
		})
		if err != nil || string(out.Body) != "late" {
			t.Errorf("Do = %q, %v; record %s", out.Body, err, b.state(t).State)
		}
	})
}

// Once a defect: do leaves the execution open, its heartbeat running, when the store cannot say whether the transaction committed.
func TestDoSettlesWhenTheCommitCannotBeConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := b.mem.Begin(ctx)
			must(t, err)
			must(t, x.CompleteTx(ctx, tx, answer("paid")))
			must(t, tx.Rollback(ctx))
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest)) // one hiccup
			return retrysafe.Result{}, context.DeadlineExceeded
		})
		t.Logf("Do = %v", err)
		time.Sleep(5 * time.Minute)
		if got := b.state(t); got.State != retrysafe.StateRetryable {
			t.Errorf("five minutes later the record is %s, lease until %v from now", got.State, time.Until(got.Deadline))
		}
	})
}

// Its function rolled the answer's transaction back, returned no error, and the store could
// not say so at once: what it returned is no answer.
func TestDoStoresNoAnswerWhoseCommitCannotBeConfirmed(t *testing.T) {
	t.Parallel()
	for _, effects := range []retrysafe.Effects{retrysafe.EffectsKeyed, retrysafe.EffectsInTx} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Effects: effects})
			_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
				tx, err := b.mem.Begin(ctx)
				must(t, err)
				must(t, x.CompleteTx(ctx, tx, answer("paid")))
				must(t, tx.Rollback(ctx))
				b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
				return answer("returned"), nil
			})
			if got := b.state(t).State; err == nil || got != retrysafe.StateRetryable {
				t.Errorf("%v: Do = %v, and the record is %s", effects, err, got)
			}
		})
	}
}

// Once a defect: fn failed by itself and runs too long: is the attempt Failed?
func TestFailAfterAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		_, err := b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			time.Sleep(b.Policy().MaxRun + time.Second)
			return retrysafe.Result{}, retrysafe.NotExecuted(context.DeadlineExceeded)
		})
		t.Logf("Do = %v", err)
		if got := b.state(t); got.State != retrysafe.StateRetryable {
			t.Errorf("the record is %s", got.State)
		}
	})
}
