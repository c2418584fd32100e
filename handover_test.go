package retrysafe_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var keyed = retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}

// handsOver does an operation that hands its key to a message, by end, and returns
// the record that the message has.
func (b *bundle) handsOver(t *testing.T, end func(*memstore.Tx) error) (rec retrysafe.Record, err error) {
	t.Helper()
	_, err = b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, err := b.mem.Begin(ctx)
		must(t, err)
		if rec, err = x.HandOver(ctx, tx, time.Hour); err != nil {
			return retrysafe.Result{}, err
		}
		return answer("not this"), end(tx)
	})
	return rec, err
}

func commit(tx *memstore.Tx) error { return tx.Commit(context.Background()) }

// A key that was handed over to a message belongs to the message: no attempt runs the
// operation again, and the acknowledgement of the message stores the answer.
func TestHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, keyed)
		rec, err := b.handsOver(t, commit)
		if !errors.Is(err, retrysafe.ErrAccepted) || rec.State != retrysafe.StateInProgress || rec.Lapse != retrysafe.LapseQuarantine {
			t.Fatalf("Do = %v, the message has %+v", err, rec)
		}
		time.Sleep(50 * time.Minute) // no lease ends meanwhile, no heartbeat comes
		if got := b.state(t); got.Revision != rec.Revision || got.Owner != rec.Owner {
			t.Errorf("the record has changed: %+v", got)
		}
		if r := b.refused(t, retrysafe.ErrAccepted); r.RetryAfter <= 0 {
			t.Error("no time to come back")
		}
		paid := answer("paid")
		w := rec.Update()
		w.State, w.Result, w.Term = retrysafe.StateCompleted, &paid, rec.Retain
		_, err = b.mem.Swap(t.Context(), w)
		must(t, err)
		b.replays(t, "paid")
	})
}

// A message that does not end in time leaves the outcome unknown, whatever the
// policy says of attempts.
func TestHandOverLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, keyed)
		if _, err := b.handsOver(t, commit); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		b.refused(t, retrysafe.ErrUnknown)
	})
}

// TestW32_HandOverWhoseCommitIsInDoubt: what the transaction did counts, not what
// its caller was told.
func TestW32_HandOverWhoseCommitIsInDoubt(t *testing.T) {
	t.Parallel()
	told := errors.New("connection reset")
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, keyed)
		if _, err := b.handsOver(t, func(tx *memstore.Tx) error { return errors.Join(commit(tx), told) }); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Errorf("committed, told otherwise: %v", err)
		}
		b.refused(t, retrysafe.ErrAccepted)
	})
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, keyed)
		rolledBack := func(tx *memstore.Tx) error { return tx.Rollback(context.Background()) }
		if _, err := b.handsOver(t, rolledBack); err == nil || errors.Is(err, retrysafe.ErrAccepted) {
			t.Errorf("rolled back: %v", err)
		}
		x := b.begins(t) // it runs again
		must(t, x.Complete(t.Context(), answer("second")))
	})
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, keyed)
		x := b.begins(t)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		_, err = x.HandOver(t.Context(), tx, time.Hour)
		must(t, err)
		must(t, tx.Commit(t.Context()))
		time.Sleep(time.Minute) // a beat finds out
		if !x.HandedOver() || b.saw(retrysafe.EventAccepted) != 1 {
			t.Error("it was not noticed")
		}
		if err := x.Complete(t.Context(), answer("mine")); !errors.Is(err, retrysafe.ErrSettled) {
			t.Errorf("Complete = %v", err)
		}
	})
}

func TestHandOverIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			policy retrysafe.Policy
			term   time.Duration
			want   error
		}{
			{term: time.Hour, want: retrysafe.ErrPolicy},
			{policy: keyed, term: -1},
			{policy: keyed, term: 0},
		} {
			b := setup(t, c.policy)
			x := b.begins(t)
			tx, err := b.mem.Begin(t.Context())
			must(t, err)
			if _, err := x.HandOver(t.Context(), tx, c.term); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("HandOver for %v = %v, want %v", c.term, err, c.want)
			}
			if err := tx.Commit(t.Context()); err == nil {
				t.Error("its transaction commits")
			}
			must(t, x.Complete(t.Context(), answer("paid")))
		}
		b := setup(t, keyed)
		x := b.begins(t)
		b.crash(t)
		must(t, b.begins(t).Complete(t.Context(), answer("second")))
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		if _, err := x.HandOver(t.Context(), tx, time.Hour); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("a zombie's HandOver = %v", err)
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("its transaction commits")
		}
	})
}

// The transaction that handed the key over has committed. That the message's receiver
// knows nothing of it does not undo what else it wrote, so no attempt runs it again.
func TestHandOverIsNotRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, effects := range []retrysafe.Effects{retrysafe.EffectsKeyed, retrysafe.EffectsInTx} {
			b := setup(t, retrysafe.Policy{Effects: effects, Lapse: retrysafe.LapseRerun})
			_, err := b.handsOver(t, commit)
			if !errors.Is(err, retrysafe.ErrAccepted) {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			b.refused(t, retrysafe.ErrUnknown)
			for _, proof := range []retrysafe.Proof{retrysafe.ProofNone, retrysafe.ProofTombstone, retrysafe.ProofAttested} {
				next, err := retrysafe.DecideEvidence(b.state(t), retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: proof}, retrysafe.Recheck{After: time.Minute, Limit: 9})
				must(t, err)
				if want := proof == retrysafe.ProofAttested; (next.State == retrysafe.StateRetryable) != want {
					t.Errorf("%s, proof %d: it is %s", effects, proof, next.State)
				}
			}
		}
	})
}

// The message's answer is kept for as long as the operation said.
func TestHandOverKeepsTheRetention(t *testing.T) {
	t.Parallel()
	b := setup(t, keyed)
	_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		x.Retain(72 * time.Hour)
		tx, err := b.mem.Begin(ctx)
		must(t, err)
		rec, err := x.HandOver(ctx, tx, time.Hour)
		if rec.Retain != 72*time.Hour {
			t.Errorf("the message has a retention of %v, want 72h", rec.Retain)
		}
		return retrysafe.Result{}, errors.Join(err, tx.Commit(ctx))
	})
	if !errors.Is(err, retrysafe.ErrAccepted) {
		t.Fatal(err)
	}
	if got := b.state(t).Retain; got != 72*time.Hour {
		t.Errorf("the record has a retention of %v, want 72h", got)
	}
}

// A transaction that took the key and rolled back is proof that nothing happened.
func TestHandOverThatRolledBackProvesThatNothingHappened(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	x := b.begins(t)
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	_, err = x.HandOver(t.Context(), tx, time.Hour)
	must(t, err)
	must(t, tx.Rollback(t.Context()))
	must(t, x.Fail(t.Context(), errors.New("constraint violated")))
	if got := b.state(t).State; got != retrysafe.StateRetryable || x.HandedOver() {
		t.Errorf("it is %s, want retryable; handed over: %v", got, x.HandedOver())
	}
}

func TestHandOverAfterABeatWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := keyed
		p.Lease = 30 * time.Second
		b := setup(t, p)
		x := b.begins(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		time.Sleep(11 * time.Second)
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		if _, err := x.HandOver(t.Context(), tx, time.Hour); !errors.Is(err, retrysafe.ErrConflict) || errors.Is(err, retrysafe.ErrLost) {
			t.Fatalf("HandOver = %v, want ErrConflict", err)
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
		_, err = x.HandOver(t.Context(), again, time.Hour)
		must(t, err)
		must(t, again.Commit(t.Context()))
		b.refused(t, retrysafe.ErrAccepted)
		time.Sleep(time.Minute) // a heartbeat finds the commit
	})
}

// A transaction that had ended before HandOver may have committed; one that fails has not.
func TestHandOverInATransactionThatHasEndedProvesNothing(t *testing.T) {
	t.Parallel()
	for want, begin := range map[retrysafe.State]func(*testing.T, *bundle) retrysafe.Tx{
		retrysafe.StateUnknown:   endedTx,
		retrysafe.StateRetryable: func(*testing.T, *bundle) retrysafe.Tx { return brokenTx{} },
	} {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
		x := b.begins(t)
		_, err := x.HandOver(t.Context(), begin(t, b), time.Hour)
		must(t, x.Release(t.Context(), err))
		if got := b.state(t).State; err == nil || got != want {
			t.Errorf("HandOver = %v; it is %s, want %s", err, got, want)
		}
	}
}

// An attempt that has not passed all stored steps is another program's: it hands nothing over.
func TestHandOverIsRefusedBeforeAllStepsArePassed(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed})
	x := b.begins(t)
	_, err := retrysafe.Phase(x.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
	must(t, err)
	must(t, x.Release(t.Context(), nil))
	again := b.begins(t)
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	if rec, err := again.HandOver(t.Context(), tx, time.Hour); !errors.Is(err, retrysafe.ErrPhases) || rec.State != 0 {
		t.Errorf("HandOver = %+v, %v", rec, err)
	}
	if tx.Commit(t.Context()) == nil {
		t.Error("the transaction committed")
	}
	must(t, again.Release(t.Context(), nil))
}

// Without randomness there is no owner for the message: nothing is handed over.
func TestHandOverWithoutRandomnessIsRefused(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	e, err := retrysafe.New(mem, &retrysafe.Options{Policy: keyed, Rand: strings.NewReader("the one attempt.")})
	must(t, err)
	x, _, err := e.Begin(t.Context(), call())
	must(t, err)
	tx, err := mem.Begin(t.Context())
	must(t, err)
	if _, err := x.HandOver(t.Context(), tx, time.Hour); !errors.Is(err, io.EOF) {
		t.Errorf("HandOver = %v", err)
	}
	if tx.Commit(t.Context()) == nil {
		t.Error("the transaction committed")
	}
	must(t, x.Complete(t.Context(), answer("paid")))
}

// An execution that is settled hands nothing over: its answer stays, and the transaction is
// rolled back.
func TestHandOverAfterTheSettlementIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, keyed)
	x := b.begins(t)
	must(t, x.Complete(t.Context(), answer("paid")))
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	if _, err := x.HandOver(t.Context(), tx, time.Hour); !errors.Is(err, retrysafe.ErrSettled) {
		t.Errorf("HandOver = %v", err)
	}
	if tx.Commit(t.Context()) == nil {
		t.Error("the transaction committed")
	}
	b.replays(t, "paid")
}
