package retrysafe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// ledger is the business side of a transaction.
type ledger struct{ rows int }

func (l *ledger) add() { l.rows++ }

func TestCompleteTxCommitsWithTheEffect(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun})
	var l ledger
	out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, err := b.mem.Begin(ctx)
		must(t, err)
		tx.OnCommit(l.add)
		must(t, x.CompleteTx(ctx, tx, answer("committed")))
		return retrysafe.Result{}, tx.Commit(ctx)
	})
	must(t, err)
	if l.rows != 1 || string(out.Body) != "committed" || b.saw(retrysafe.EventUnfenced) != 0 {
		t.Errorf("%d rows, %q", l.rows, out.Body)
	}
	b.replays(t, "committed")
}

// The answer is kept for as long as the operation said, also if that is shorter than the
// policy says.
func TestCompleteTxKeepsTheRetention(t *testing.T) {
	t.Parallel()
	for _, want := range []time.Duration{time.Hour, 72 * time.Hour} {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			x.Retain(want)
			tx, err := b.mem.Begin(ctx)
			must(t, err)
			must(t, x.CompleteTx(ctx, tx, answer("kept")))
			return retrysafe.Result{}, tx.Commit(ctx)
		})
		must(t, err)
		if r := b.state(t); r.Retain != want || r.Deadline.Sub(r.UpdatedAt) != want {
			t.Errorf("retention %v until %v, want %v", r.Retain, r.Deadline.Sub(r.UpdatedAt), want)
		}
	}
}

func TestW32_CommitThatWasToldToHaveFailedIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	var l ledger
	out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, err := b.mem.Begin(ctx)
		must(t, err)
		tx.OnCommit(l.add)
		must(t, x.CompleteTx(ctx, tx, answer("committed")))
		must(t, tx.Commit(ctx))
		return retrysafe.Result{}, errors.New("connection lost during COMMIT")
	})
	if err != nil || string(out.Body) != "committed" || l.rows != 1 {
		t.Errorf("Do = %+v, %v", out, err)
	}
	b.replays(t, "committed")
}

func TestW32_RollbackIsFoundAndTheKeyRunsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	var l ledger
	run := func(commit bool) error {
		_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			tx, err := b.mem.Begin(ctx)
			must(t, err)
			tx.OnCommit(l.add)
			must(t, x.CompleteTx(ctx, tx, answer("committed")))
			if !commit {
				must(t, tx.Rollback(ctx))
				return retrysafe.Result{}, errors.New("constraint violated")
			}
			return retrysafe.Result{}, tx.Commit(ctx)
		})
		return err
	}
	if err := run(false); err == nil || b.state(t).State != retrysafe.StateRetryable || l.rows != 0 {
		t.Fatalf("Do = %v, record %s, %d rows", err, b.state(t).State, l.rows)
	}
	must(t, run(true))
	if l.rows != 1 {
		t.Errorf("%d rows, want 1", l.rows)
	}
	b.replays(t, "committed")
}

func TestW32_AmbiguousCommitIsWaitedForNotReadAround(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		var l ledger
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		tx.OnCommit(l.add)
		must(t, x.CompleteTx(t.Context(), tx, answer("late commit")))
		go func() { // COMMIT hangs for a second, its caller has lost the connection
			time.Sleep(time.Second)
			must(t, tx.Commit(t.Context()))
		}()
		if err := x.Fail(t.Context(), errors.New("connection lost")); !errors.Is(err, retrysafe.ErrSettled) {
			t.Errorf("Fail = %v; it read around the lock", err)
		}
		out, err := x.Outcome(t.Context())
		if err != nil || string(out.Body) != "late commit" || l.rows != 1 {
			t.Errorf("Outcome = %+v, %v", out, err)
		}
	})
}

// impatient is a store that does not wait for a transaction: it says that the
// record is busy.
type impatient struct {
	retrysafe.Store
	busy int
}

func (s *impatient) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if s.busy > 0 {
		s.busy--
		return retrysafe.Record{}, retrysafe.ErrBusy
	}
	return s.Store.Swap(ctx, w)
}

func TestW32_BusyRecordIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		s := &impatient{Store: mem}
		e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
		must(t, err)
		x, _, err := e.Begin(t.Context(), call())
		must(t, err)
		tx, err := mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), tx, answer("committed")))
		must(t, tx.Commit(t.Context()))
		s.busy = 5
		if out, err := x.Outcome(t.Context()); err != nil || string(out.Body) != "committed" {
			t.Errorf("Outcome = %+v, %v; it did not wait", out, err)
		}
	})
}

// A heartbeat that the store does not answer may wait for the very transaction that
// CompleteTx is called in: it is cancelled rather than waited for.
func TestCompleteTxCancelsAHeartbeatThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailAll(faultstore.Hang))
		time.Sleep(b.Policy().Lease/3 + time.Millisecond)
		if b.fault.Count(faultstore.Swap) != 1 {
			t.Fatal("no heartbeat is under way")
		}
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		start := time.Now()
		must(t, x.CompleteTx(t.Context(), tx, answer("booked")))
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("it waited for %v", took)
		}
		must(t, tx.Commit(t.Context()))
		b.fault.Plan(nil)
		b.replays(t, "booked")
		_, err = x.Outcome(t.Context())
		must(t, err)
	})
}

func TestCompleteTxRefusedCannotCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun})
		var l ledger
		b.seenInTx(t)
		zombie := b.begins(t)
		b.crash(t)
		b.completeInTx(t, b.begins(t), "heir's")
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		tx.OnCommit(l.add)
		if err := zombie.CompleteTx(t.Context(), tx, answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("CompleteTx = %v, want ErrLost", err)
		}
		if err := tx.Commit(t.Context()); err == nil || l.rows != 0 { // a careless caller goes on
			t.Errorf("Commit = %v, %d rows: a second effect", err, l.rows)
		}
		other, err := b.mem.Begin(t.Context())
		must(t, err)
		other.OnCommit(l.add)
		if err := zombie.CompleteTx(t.Context(), other, answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("CompleteTx = %v, want ErrLost", err)
		}
		if err := other.Commit(t.Context()); err == nil || l.rows != 0 {
			t.Errorf("Commit = %v, %d rows: a second effect", err, l.rows)
		}
		b.replays(t, "heir's")
	})
}

func TestHeartbeatRestsDuringATransactionAndResumesAfterARollback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 30 * time.Second})
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), tx, answer("first try")))
		b.fault.Plan(nil)
		time.Sleep(9 * time.Second)
		if n := b.fault.Count(faultstore.Swap); n != 0 {
			t.Errorf("%d beats while the transaction was open", n)
		}
		must(t, tx.Rollback(t.Context()))
		time.Sleep(time.Minute)
		if n := b.fault.Count(faultstore.Swap); n < 3 {
			t.Errorf("%d beats in a minute after the rollback", n)
		}
		b.refused(t, retrysafe.ErrInFlight)
		again, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), again, answer("second try")))
		must(t, again.Commit(t.Context()))
		time.Sleep(time.Minute) // the beat finds the commit by itself
		if x.State() != retrysafe.StateCompleted {
			t.Errorf("the execution is %s", x.State())
		}
		b.replays(t, "second try")
	})
}

func TestCompleteTxAfterABeatWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 30 * time.Second})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		time.Sleep(11 * time.Second)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		if err := x.CompleteTx(t.Context(), tx, answer("x")); !errors.Is(err, retrysafe.ErrConflict) {
			t.Fatalf("CompleteTx = %v, want ErrConflict", err)
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("a refused transaction committed")
		}
		time.Sleep(2 * time.Minute) // heartbeats go on meanwhile
		if r := b.state(t); r.Due() {
			t.Error("the lease has run out while the operation ran")
		}
		again, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), again, answer("x")))
		must(t, again.Commit(t.Context()))
		if _, err := x.Outcome(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// brokenTx fails in every step.
type brokenTx struct{ retrysafe.Tx }

func (brokenTx) Swap(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, faultstore.ErrInjected
}
func (brokenTx) Rollback(context.Context) error { return errors.New("connection is gone") }

func TestCompleteTxOnABrokenTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	x := b.begins(t)
	err := x.CompleteTx(t.Context(), brokenTx{}, answer("x"))
	if !errors.Is(err, faultstore.ErrInjected) || !strings.Contains(err.Error(), "connection is gone") {
		t.Errorf("CompleteTx = %v", err)
	}
	must(t, x.Release(t.Context(), err))
}

func TestUnfencedCompletionIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	if err := b.begins(t).Complete(t.Context(), answer("outside a transaction")); !errors.Is(err, retrysafe.ErrNotInTx) {
		t.Errorf("Complete = %v, want ErrNotInTx", err)
	}
	if b.saw(retrysafe.EventUnfenced) != 1 {
		t.Error("no event reports that effect and answer were not one commit")
	}
	b.refused(t, retrysafe.ErrUnknown)
}

// completeInTx completes an execution in a transaction.
func (b *bundle) completeInTx(t *testing.T, x *retrysafe.Execution, body string) {
	t.Helper()
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	must(t, x.CompleteTx(t.Context(), tx, answer(body)))
	must(t, tx.Commit(t.Context()))
	_, err = x.Outcome(t.Context())
	must(t, err)
}

// After a transaction of CompleteTx that rolled back the attempt goes on as before it: its
// next phase runs.
func TestAttemptGoesOnAfterARolledBackCompletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 10 * time.Second})
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), tx, answer("undone")))
		must(t, tx.Rollback(t.Context()))
		time.Sleep(8 * time.Second) // a heartbeat finds out that it rolled back
		if _, err := retrysafe.Phase(x.Context(), "another way", func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Errorf("the next phase = %v", err)
		}
		b.completeInTx(t, x, "in another transaction")
		b.replays(t, "in another transaction")
	})
}

// seenInTx lets the operation complete in a transaction once, under another key, so that
// a lapse of it proves a rollback from now on.
func (b *bundle) seenInTx(t *testing.T) {
	t.Helper()
	c := call()
	c.Key = "seen in a transaction"
	x, _, err := b.Begin(t.Context(), c)
	must(t, err)
	b.completeInTx(t, x, "seen")
}

func TestKeyHeldByAnOpenTransactionIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		patient, err := b.With(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: 5 * time.Second})
		must(t, err)
		hold := func() *memstore.Tx {
			tx, err := b.mem.Begin(t.Context())
			must(t, err)
			if _, err := tx.Reserve(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Fatalf("Reserve = %v", err)
			}
			return tx
		}
		tx := hold()
		b.refused(t, retrysafe.ErrInFlight)
		start := time.Now()
		if _, _, err := patient.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) || time.Since(start) != 5*time.Second {
			t.Errorf("after waiting for %v: %v", time.Since(start), err)
		}
		go func() {
			time.Sleep(time.Second)
			must(t, tx.Rollback(t.Context()))
		}()
		x, _, err := patient.Begin(t.Context(), call())
		must(t, err)
		must(t, x.Release(t.Context(), nil))
	})
}

// mutedTx is rolled back, and does not say so.
type mutedTx struct{ retrysafe.Tx }

func (tx mutedTx) Rollback(ctx context.Context) error {
	return errors.Join(tx.Tx.Rollback(ctx), errors.New("connection is gone"))
}

// CompleteTx on an execution that holds an answer in a transaction already: what became of
// that transaction decides, and the second transaction never commits.
func TestSecondCompleteTxFindsOutWhatBecameOfTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		x := b.begins(t)
		first, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), first, answer("first")))
		must(t, first.Commit(t.Context()))
		second, err := b.mem.Begin(t.Context())
		must(t, err)
		if err := x.CompleteTx(t.Context(), mutedTx{second}, answer("second")); !errors.Is(err, retrysafe.ErrSettled) || strings.Contains(err.Error(), "twice") || !strings.Contains(err.Error(), "connection is gone") {
			t.Errorf("after a commit: CompleteTx = %v, want ErrSettled and what the rollback returned", err)
		}
		if err := second.Commit(t.Context()); err == nil {
			t.Error("a second effect committed")
		}
		if x.State() != retrysafe.StateCompleted {
			t.Errorf("the execution is %s", x.State())
		}
		b.replays(t, "first")
	})
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 10 * time.Second})
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, x.CompleteTx(t.Context(), tx, answer("once")))
		if err := x.CompleteTx(t.Context(), tx, answer("twice")); err == nil || !strings.Contains(err.Error(), "called twice") || errors.Is(err, retrysafe.ErrSettled) || errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("twice in one transaction: CompleteTx = %v", err)
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("the transaction committed")
		}
		time.Sleep(time.Minute)
		b.refused(t, retrysafe.ErrInFlight) // its heartbeats go on
		b.completeInTx(t, x, "in another")
		b.replays(t, "in another")
	})
}

// A transaction that refuses the answer costs the attempt nothing but that transaction, be
// it another database's, broken, or ended before: the lease is renewed as before.
func TestHeartbeatGoesOnAfterATransactionThatRefusesTheAnswer(t *testing.T) {
	t.Parallel()
	hands := func(x *retrysafe.Execution, tx retrysafe.Tx) error {
		_, err := x.HandOver(t.Context(), tx, time.Hour)
		return err
	}
	completes := func(x *retrysafe.Execution, tx retrysafe.Tx) error {
		return x.CompleteTx(t.Context(), tx, answer("refused"))
	}
	for name, c := range map[string]struct {
		tx   func(t *testing.T, b *bundle) retrysafe.Tx
		give func(*retrysafe.Execution, retrysafe.Tx) error
		want error
	}{
		"CompleteTx of another database": {foreignTx, completes, retrysafe.ErrNotFound},
		"CompleteTx of a broken one":     {func(*testing.T, *bundle) retrysafe.Tx { return brokenTx{} }, completes, faultstore.ErrInjected},
		"CompleteTx of one that ended":   {endedTx, completes, retrysafe.ErrTxDone},
		"HandOver of another database":   {foreignTx, hands, retrysafe.ErrNotFound},
		"HandOver of a broken one":       {func(*testing.T, *bundle) retrysafe.Tx { return brokenTx{} }, hands, faultstore.ErrInjected},
		"HandOver of one that ended":     {endedTx, hands, retrysafe.ErrTxDone},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 10 * time.Second})
			x := b.begins(t)
			tx := c.tx(t, b)
			err := c.give(x, tx)
			if !errors.Is(err, c.want) || errors.Is(err, retrysafe.ErrLost) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if c.want == retrysafe.ErrNotFound && !strings.Contains(err.Error(), "begun on another database") { //nolint:errorlint // it is the table's own
				t.Errorf("%s: %v", name, err)
			}
			if mem, ok := tx.(*memstore.Tx); ok && mem.Commit(t.Context()) == nil {
				t.Errorf("%s: the transaction committed", name)
			}
			time.Sleep(time.Minute)
			b.refused(t, retrysafe.ErrInFlight)
			b.completeInTx(t, x, "in another")
			b.replays(t, "in another")
		})
	}
}

// foreignTx begins a transaction of a database that has no record of the execution.
func foreignTx(t *testing.T, _ *bundle) retrysafe.Tx {
	t.Helper()
	tx, err := memstore.New(nil).Begin(t.Context())
	must(t, err)
	return tx
}

// endedTx returns a transaction that has ended.
func endedTx(t *testing.T, b *bundle) retrysafe.Tx {
	t.Helper()
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	must(t, tx.Rollback(t.Context()))
	return tx
}

// A heartbeat that is about to end is waited for rather than cancelled: its renewal may be
// stored already, and then the store would refuse the transaction's answer.
func TestCompleteTxWaitsForAHeartbeatThatIsAboutToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lease: 30 * time.Second})
		x := b.begins(t)
		b.fault.Plan(func(faultstore.Step) faultstore.Fault {
			time.Sleep(50 * time.Millisecond)
			return faultstore.None
		})
		time.Sleep(10*time.Second + time.Millisecond)
		b.completeInTx(t, x, "booked")
		if b.saw(retrysafe.EventStoreError) != 0 {
			t.Error("the heartbeat was cancelled")
		}
		b.replays(t, "booked")
	})
}

// A refusal needs no transaction: nothing was done, so there is nothing to be one with.
func TestRefusalOutsideATransactionIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	must(t, b.begins(t).Complete(t.Context(), retrysafe.Result{Status: 400, Body: []byte("no such account")}))
	if _, out, err := b.Begin(t.Context(), call()); out == nil || out.Status != 400 || b.saw(retrysafe.EventUnfenced) != 0 {
		t.Errorf("Begin = %+v, %v", out, err)
	}
}

// An execution whose record is gone or is another attempt's has lost it, also where the
// transaction cannot see that.
func TestLostExecutionIsToldSoByATransactionOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *bundle){
		"gone": func(t *testing.T, b *bundle) {
			w := b.state(t).Update()
			w.State, w.Term = retrysafe.StateRetryable, 0
			_, err := b.mem.Swap(t.Context(), w)
			must(t, err)
			if n, err := b.mem.Purge(t.Context(), 10); n != 1 || err != nil {
				t.Fatalf("Purge = %d, %v", n, err)
			}
		},
		"settled": func(t *testing.T, b *bundle) {
			w := b.state(t).Update()
			w.State, w.Term = retrysafe.StateRetryable, time.Hour
			_, err := b.mem.Swap(t.Context(), w)
			must(t, err)
		},
		"another's": func(t *testing.T, b *bundle) {
			w := b.state(t).Update()
			w.State, w.Term = retrysafe.StateRetryable, time.Hour
			_, err := b.mem.Swap(t.Context(), w)
			must(t, err)
			b.begins(t)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, keyed)
			x := b.begins(t)
			lose(t, b)
			if err := x.CompleteTx(t.Context(), foreignTx(t, b), answer("late")); !errors.Is(err, retrysafe.ErrLost) {
				t.Errorf("%s: CompleteTx = %v, want ErrLost", name, err)
			}
			if !errors.Is(context.Cause(x.Context()), retrysafe.ErrLost) {
				t.Errorf("%s: its context: %v", name, context.Cause(x.Context()))
			}
			b = setup(t, keyed)
			x = b.begins(t)
			lose(t, b)
			if _, err := x.HandOver(t.Context(), foreignTx(t, b), time.Hour); !errors.Is(err, retrysafe.ErrLost) {
				t.Errorf("%s: HandOver = %v, want ErrLost", name, err)
			}
		})
	}
}

// An attempt that was taken for unknown too early completes in a transaction: what was asked
// about it meanwhile is no part of what it leaves behind.
func TestCompleteTxAfterItWasGivenUpTooEarly(t *testing.T) {
	t.Parallel()
	b := setup(t, inTx)
	x := b.begins(t)
	w := b.state(t).Update()
	w.State, w.Term, w.Inquiry.Tries, w.Inquiry.Dead = retrysafe.StateUnknown, time.Hour, 3, true
	_, err := b.mem.Swap(t.Context(), w)
	must(t, err)
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	if err := x.CompleteTx(t.Context(), tx, answer("paid")); !errors.Is(err, retrysafe.ErrConflict) {
		t.Fatalf("CompleteTx = %v, want ErrConflict", err)
	}
	must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "goes on"}))
	if got := b.state(t).State; got != retrysafe.StateInProgress {
		t.Errorf("it is %s after its owner has renewed the lease", got)
	}
	b.completeInTx(t, x, "paid")
	if q := b.state(t).Inquiry; q.Tries != 0 || q.Dead {
		t.Errorf("a completed record has the inquiry %+v", q)
	}
}

// The answer was in no transaction, and that cannot be stored either: the caller learns both.
func TestRefusalOutsideATransactionThatIsNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, inTx)
		x := b.begins(t)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		if err := x.Complete(t.Context(), answer("paid")); !errors.Is(err, retrysafe.ErrNotInTx) || !errors.Is(err, retrysafe.ErrUnsettled) || b.saw(retrysafe.EventUnfenced) != 0 {
			t.Errorf("Complete = %v; observer saw %v", err, b.events)
		}
		b.fault.Plan(nil)
		must(t, b.Drain(t.Context()))
		b.refused(t, retrysafe.ErrUnknown)
	})
}

// Another process has settled the attempt meanwhile. The record still has its owner, and it
// is lost all the same: no later transaction of it stores an answer.
func TestTransactionOfASettledAttemptIsLost(t *testing.T) {
	t.Parallel()
	for _, state := range []retrysafe.State{retrysafe.StateRetryable, retrysafe.StateCompleted} {
		for name, step := range map[string]func(*retrysafe.Execution, retrysafe.Tx) error{
			"CompleteTx": func(x *retrysafe.Execution, tx retrysafe.Tx) error {
				return x.CompleteTx(t.Context(), tx, answer("late"))
			},
			"HandOver": func(x *retrysafe.Execution, tx retrysafe.Tx) error {
				_, err := x.HandOver(t.Context(), tx, time.Hour)
				return err
			},
		} {
			b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed})
			x := b.begins(t)
			undone, err := b.mem.Begin(t.Context())
			must(t, err)
			must(t, x.CompleteTx(t.Context(), undone, answer("early")))
			must(t, undone.Rollback(t.Context()))
			w := b.state(t).Update()
			w.State, w.Term = state, time.Hour
			if state == retrysafe.StateCompleted {
				paid := answer("by an operator")
				w.Result = &paid
			}
			settled, err := b.mem.Swap(t.Context(), w)
			must(t, err)
			for range 2 {
				tx, err := b.mem.Begin(t.Context())
				must(t, err)
				if err := step(x, tx); !errors.Is(err, retrysafe.ErrLost) || strings.Contains(err.Error(), "twice") {
					t.Errorf("%s of an attempt that is %s = %v", name, state, err)
				}
				_ = tx.Commit(t.Context())
			}
			if got := b.state(t); got.Revision != settled.Revision {
				t.Errorf("%s: it is %s, and was %s", name, got.State, state)
			}
		}
	}
}

// An attempt that another one has followed is told so, also if that one gave the same answer.
func TestSameAnswerOfALaterAttemptIsNotItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	must(t, x.CompleteTx(t.Context(), tx, answer("paid")))
	must(t, tx.Rollback(t.Context()))
	w, paid := b.state(t).Update(), answer("paid")
	w.Owner, w.Attempt, w.State, w.Result, w.Overwrite, w.Term = retrysafe.Owner{9}, 2, retrysafe.StateCompleted, &paid, true, time.Hour
	_, err = b.mem.Swap(t.Context(), w)
	must(t, err)
	late, err := b.mem.Begin(t.Context())
	must(t, err)
	if err := x.CompleteTx(t.Context(), late, answer("paid")); !errors.Is(err, retrysafe.ErrLost) || strings.Contains(err.Error(), "twice") {
		t.Errorf("CompleteTx = %v", err)
	}
	if err := x.Complete(t.Context(), answer("paid")); !errors.Is(err, retrysafe.ErrLost) || b.saw(retrysafe.EventCompleted) != 0 {
		t.Errorf("Complete = %v; observer saw %v", err, b.events)
	}
}

// goneTx refuses the answer, and notes the context that it is rolled back in.
type goneTx struct {
	brokenTx
	rolledBack []error
}

func (tx *goneTx) Rollback(ctx context.Context) error {
	tx.rolledBack = append(tx.rolledBack, ctx.Err())
	return nil
}

// A transaction that must not commit is rolled back, also for a caller that has gone.
func TestRefusedTransactionIsRolledBackForACallerThatHasGone(t *testing.T) {
	t.Parallel()
	x := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed}).begins(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var tx goneTx
	if err := x.CompleteTx(gone, &tx, answer("paid")); err == nil || len(tx.rolledBack) != 1 || tx.rolledBack[0] != nil {
		t.Errorf("CompleteTx = %v; rolled back with %v", err, tx.rolledBack)
	}
	var other goneTx
	if _, err := x.HandOver(gone, &other, time.Hour); err == nil || len(other.rolledBack) != 1 || other.rolledBack[0] != nil {
		t.Errorf("HandOver = %v; rolled back with %v", err, other.rolledBack)
	}
	must(t, x.Release(t.Context(), nil))
}

// A zombie never takes up the record of the attempt that runs now, not even at its next try.
func TestTransactionOfAZombieIsLostWhileItsHeirRuns(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(*retrysafe.Execution, retrysafe.Tx) error{
		"CompleteTx": func(x *retrysafe.Execution, tx retrysafe.Tx) error {
			return x.CompleteTx(t.Context(), tx, answer("zombie"))
		},
		"HandOver": func(x *retrysafe.Execution, tx retrysafe.Tx) error {
			_, err := x.HandOver(t.Context(), tx, time.Hour)
			return err
		},
	} {
		b := setup(t, keyed)
		x := b.begins(t)
		heir := b.state(t).Update()
		heir.Owner, heir.Overwrite, heir.Attempt, heir.Term = retrysafe.Owner{7}, true, 2, time.Hour
		_, err := b.mem.Swap(t.Context(), heir)
		must(t, err)
		for range 2 {
			tx, err := b.mem.Begin(t.Context())
			must(t, err)
			if err := give(x, tx); !errors.Is(err, retrysafe.ErrLost) {
				t.Errorf("%s = %v, want ErrLost", name, err)
			}
			if tx.Commit(t.Context()) == nil {
				t.Errorf("%s: the zombie's transaction committed", name)
			}
		}
		if got := b.state(t).Owner; got != (retrysafe.Owner{7}) {
			t.Errorf("%s: the record is %s's", name, got)
		}
	}
}

// A transaction that refuses the answer cannot commit, which proves that nothing happened.
// One that had ended before proves nothing.
func TestFailureAfterATransactionThatRefusesTheAnswer(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(*retrysafe.Execution, retrysafe.Tx) error{
		"CompleteTx": func(x *retrysafe.Execution, tx retrysafe.Tx) error {
			return x.CompleteTx(t.Context(), tx, answer("refused"))
		},
		"HandOver": func(x *retrysafe.Execution, tx retrysafe.Tx) error {
			_, err := x.HandOver(t.Context(), tx, time.Hour)
			return err
		},
	} {
		for want, begin := range map[retrysafe.State]func(*testing.T, *bundle) retrysafe.Tx{
			retrysafe.StateUnknown:   endedTx,
			retrysafe.StateRetryable: func(*testing.T, *bundle) retrysafe.Tx { return brokenTx{} },
		} {
			b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
			x := b.begins(t)
			err := give(x, begin(t, b))
			must(t, x.Fail(t.Context(), err))
			if got := b.state(t).State; err == nil || got != want {
				t.Errorf("%s = %v; it is %s, want %s", name, err, got, want)
			}
		}
	}
}

// Only an answer that a transaction has committed shows that the operation completes in
// transactions: neither one that was rolled back, nor what followed a commit of its own.
func TestOperationThatAnsweredOutsideItsTransactionsIsNotNoted(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T, *bank, *retrysafe.Execution){
		"rolled back": func(t *testing.T, b *bank, x *retrysafe.Execution) {
			t.Helper()
			tx, err := b.mem.Begin(t.Context())
			must(t, err)
			must(t, x.CompleteTx(t.Context(), tx, answer("undone")))
			must(t, tx.Rollback(t.Context()))
		},
		"committed by itself": func(t *testing.T, b *bank, x *retrysafe.Execution) {
			t.Helper()
			_, err := b.book(x.Context(), "a")
			must(t, err)
			x.Stop()
			if err := x.CompleteTx(t.Context(), endedTx(t, b.bundle), answer("late")); !errors.Is(err, retrysafe.ErrTxDone) {
				t.Fatal(err)
			}
		},
	} {
		b := newBank(t, inTx)
		x := b.begins(t)
		run(t, b, x)
		must(t, x.Complete(t.Context(), retrysafe.Result{Status: 422}))
		notes, err := b.mem.List(t.Context(), retrysafe.Query{Scope: retrysafe.SystemScope("joined")})
		if err != nil || len(notes) != 0 {
			t.Errorf("%s: %d notes, %v", name, len(notes), err)
		}
	}
}
