package retrysafe_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// book is a phase of the operation that books a row.
func (b *bank) book(ctx context.Context, name string) (string, error) {
	return retrysafe.PhaseTx(ctx, b, name, func(ctx context.Context, tx *memstore.Tx) (string, error) {
		b.runs.Add(1)
		tx.OnCommit(func() { b.rows.Add(1) })
		if b.fn != nil {
			_, err := b.fn(ctx, tx)
			return name, err
		}
		return name, nil
	})
}

// attempt runs the operation once.
func (b *bank) attempt(t *testing.T, fn func(ctx context.Context, x *retrysafe.Execution) error) error {
	t.Helper()
	_, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		return answer("done"), fn(ctx, x)
	})
	return err
}

// names returns the names of the steps that are stored.
func (b *bank) names(t *testing.T) (names []string) {
	t.Helper()
	steps, err := b.state(t).Checkpoint.Steps()
	must(t, err)
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

// A heartbeat that is due while a phase has its transaction open is put off, not left
// out: the lease of an operation that goes on after the phase is renewed.
func TestHeartbeatGoesOnAfterAPhaseTx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume, Lease: 30 * time.Second})
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(15 * time.Second) // a beat is due after ten
			return retrysafe.Result{}, nil
		}
		must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := b.book(ctx, "a")
			for range 10 {
				time.Sleep(20 * time.Second)
				b.refused(t, retrysafe.ErrInFlight)
			}
			return err
		}))
	})
}

// A phase that has committed counts, also if the reply to its commit was lost: the answer
// of the operation needs no further transaction.
func TestPhaseTxWhoseCommitReplyIsLostHasCommitted(t *testing.T) {
	t.Parallel()
	b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseResume})
	b.commit = func(ctx context.Context, tx *memstore.Tx) error {
		must(t, tx.Commit(ctx))
		return errLine
	}
	must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := b.book(ctx, "a")
		return err
	}))
	b.booked(t, 1, 1)
	b.replays(t, "done")
}

func TestPhaseTxCommitsWritesAndResultTogether(t *testing.T) {
	t.Parallel()
	for _, policy := range []retrysafe.Policy{resumes, {Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseResume}, {}} {
		b := newBank(t, policy)
		b.store = func(r retrysafe.Write) error {
			if r.State != retrysafe.StateInProgress || r.Term != b.Policy().Lease {
				t.Errorf("a phase writes %+v", r)
			}
			return nil
		}
		must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			for _, name := range []string{"a", "b"} {
				if got, err := b.book(ctx, name); got != name || err != nil {
					t.Errorf("PhaseTx = %q, %v", got, err)
				}
			}
			return nil
		}))
		b.booked(t, 2, 2)
		if got := b.names(t); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("stored %q", got)
		}
		b.replays(t, "done")
	}
}

func TestPhaseTxThatIsFinishedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	for n := 1; n <= 3; n++ {
		err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			if got, err := b.book(ctx, "a"); got != "a" || err != nil {
				t.Errorf("PhaseTx = %q, %v", got, err)
			}
			if n < 3 {
				return errors.New("stop")
			}
			return nil
		})
		if (err == nil) != (n == 3) {
			t.Fatal(err)
		}
	}
	b.booked(t, 1, 1)
}

// A phase that has moved into a transaction, or out of it, is the same phase.
func TestPhaseMayMoveIntoATransaction(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	plain := func(ctx context.Context, name string) (string, error) {
		return retrysafe.Phase(ctx, name, func(context.Context) (string, error) { return name, nil })
	}
	_ = b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, one := plain(ctx, "a")
		_, two := b.book(ctx, "b")
		return errors.Join(one, two, errors.New("stop"))
	})
	must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, one := b.book(ctx, "a")
		_, two := plain(ctx, "b")
		return errors.Join(one, two)
	}))
	b.booked(t, 1, 1)
}

func TestPhaseTxThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	no := errors.New("constraint violated")
	for name, fn := range map[string]func(context.Context, *memstore.Tx) (retrysafe.Result, error){
		"an error": func(context.Context, *memstore.Tx) (retrysafe.Result, error) { return retrysafe.Result{}, no },
		"a panic":  func(context.Context, *memstore.Tx) (retrysafe.Result, error) { panic(no) },
		"a Goexit": nil,
		"an ignored error of its own": func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			_, _ = tx.Create(ctx, retrysafe.Write{Record: retrysafe.Record{Ref: ref}})
			return retrysafe.Result{}, nil
		},
		"its own rollback": func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			return retrysafe.Result{}, tx.Rollback(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, resumes)
			b.fn = fn
			if fn == nil {
				b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
					runtime.Goexit()
					return retrysafe.Result{}, nil
				}
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
					_, err := b.book(ctx, "a")
					return err
				})
				if err == nil {
					t.Error("it was completed")
				}
			}()
			<-done
			b.booked(t, 1, 0)
			if r := b.state(t); r.State != retrysafe.StateRetryable || len(b.names(t)) != 0 {
				t.Errorf("the record is %s, %q", r.State, b.names(t))
			}
			b.fn = nil
			must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
				_, err := b.book(ctx, "a")
				return err
			}))
			b.booked(t, 2, 1)
		})
	}
}

// A phase that ended its transaction itself may have committed its writes without its
// result. No failure of the operation proves then that they are not stored, and no answer
// says that they are.
func TestPhaseTxThatEndsItsTransactionProvesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settle func(x *retrysafe.Execution) error
		want   error
	}{
		"failed":    {settle: func(x *retrysafe.Execution) error { return x.Fail(t.Context(), errLine) }},
		"released":  {settle: func(x *retrysafe.Execution) error { return x.Release(t.Context(), errLine) }},
		"completed": {func(x *retrysafe.Execution) error { return x.Complete(t.Context(), answer("done")) }, retrysafe.ErrNotInTx},
	} {
		for _, returned := range []error{nil, errLine} {
			b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseResume})
			x := b.begins(t)
			_, err := b.book(x.Context(), "a")
			must(t, err)
			b.fn = func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
				return retrysafe.Result{}, errors.Join(tx.Commit(ctx), returned)
			}
			if _, err := b.book(x.Context(), "b"); !errors.Is(err, retrysafe.ErrTxDone) {
				t.Errorf("%s, returned %v: PhaseTx = %v", name, returned, err)
			}
			if err := c.settle(x); !errors.Is(err, c.want) {
				t.Errorf("%s, returned %v: %v, want %v", name, returned, err, c.want)
			}
			if got := b.state(t).State; got != retrysafe.StateUnknown {
				t.Errorf("%s, returned %v: it is %s, and its writes are stored", name, returned, got)
			}
		}
	}
}

// What waits for the gate inside of a phase that holds it would wait for ever.
func TestExecutionCannotBeSettledInsideAPhaseTx(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	must(t, b.attempt(t, func(ctx context.Context, x *retrysafe.Execution) error {
		b.fn = func(ctx context.Context, _ *memstore.Tx) (retrysafe.Result, error) {
			other, err := b.mem.Begin(ctx)
			must(t, err)
			third, err := b.mem.Begin(ctx)
			must(t, err)
			_, handed := x.HandOver(ctx, third, time.Hour)
			_, nested := b.book(ctx, "inner")
			for name, err := range map[string]error{
				"Complete":   x.Complete(ctx, answer("early")),
				"CompleteTx": x.CompleteTx(ctx, other, answer("early")),
				"HandOver":   handed,
				"Release":    x.Release(ctx, nil),
				"Quarantine": x.Quarantine(ctx, nil),
				"Fail":       x.Fail(ctx, errors.New("no")),
				"Save":       x.Save(ctx, retrysafe.Checkpoint{Phase: "mine"}),
				"PhaseTx":    nested,
			} {
				if !errors.Is(err, retrysafe.ErrPhases) {
					t.Errorf("%s inside = %v", name, err)
				}
			}
			if other.Commit(ctx) == nil || third.Commit(ctx) == nil {
				t.Error("a refused transaction committed")
			}
			if _, err := x.Outcome(ctx); !errors.Is(err, retrysafe.ErrOpen) {
				t.Errorf("Outcome inside = %v", err)
			}
			return retrysafe.Result{}, nil
		}
		_, err := b.book(ctx, "a")
		return err
	}))
	b.booked(t, 1, 1)
	b.replays(t, "done")
}

// Its caller was told that the commit failed, though it took place: the phase is
// finished. Or it was rolled back: then it is not, and the operation runs it again.
func TestW32_PhaseTxAmbiguousCommitIsResolved(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for name, c := range map[string]struct {
		commit func(ctx context.Context, tx *memstore.Tx) error
		rows   int32 // of the first attempt
	}{
		"committed":          {func(ctx context.Context, tx *memstore.Tx) error { must(t, tx.Commit(ctx)); return lost }, 1},
		"rolled back":        {func(ctx context.Context, tx *memstore.Tx) error { must(t, tx.Rollback(ctx)); return lost }, 0},
		"not sent":           {func(context.Context, *memstore.Tx) error { return lost }, 0},
		"hangs and commits":  {func(ctx context.Context, tx *memstore.Tx) error { go late(t, tx.Commit); return lost }, 1},
		"hangs and does not": {func(ctx context.Context, tx *memstore.Tx) error { go late(t, tx.Rollback); return lost }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, resumes)
				b.commit = c.commit
				if strings.HasPrefix(name, "hangs") {
					b.rollback = func(*memstore.Tx) error { return lost } // its connection is gone
				}
				err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
					_, err := b.book(ctx, "a")
					return err
				})
				if (err == nil) != (c.rows == 1) || err != nil && !errors.Is(err, lost) {
					t.Errorf("Do = %v", err)
				}
				b.booked(t, 1, c.rows)
				if c.rows == 1 {
					b.replays(t, "done")
					return
				}
				if b.state(t).State != retrysafe.StateRetryable {
					t.Errorf("the record is %s", b.state(t).State)
				}
				b.commit = nil
				must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
					_, err := b.book(ctx, "a")
					return err
				}))
				b.booked(t, 2, 1)
			})
		})
	}
}

// late ends a transaction behind its caller's back.
func late(t *testing.T, end func(context.Context) error) {
	time.Sleep(time.Second)
	if err := end(context.Background()); err != nil {
		t.Error(err)
	}
}

// The commit hangs for longer than the attempt waits: no other step follows, nothing
// is claimed, and the operation goes on from what was committed in the end.
func TestW32_PhaseTxCommitThatHangsForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, resumes)
		lost := errors.New("connection lost")
		b.rollback = func(*memstore.Tx) error { return lost }
		b.commit = func(_ context.Context, tx *memstore.Tx) error {
			go func() {
				time.Sleep(10 * time.Second)
				if err := tx.Commit(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			return lost
		}
		err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := b.book(ctx, "a")
			if !errors.Is(err, lost) || !strings.Contains(err.Error(), "it is unknown whether") {
				t.Errorf("PhaseTx = %v", err)
			}
			for _, next := range []string{"a", "b"} {
				if _, err := b.book(ctx, next); !errors.Is(err, retrysafe.ErrPhases) {
					t.Errorf("then %q = %v", next, err)
				}
			}
			return err
		})
		if !errors.Is(err, retrysafe.ErrUnsettled) {
			t.Errorf("Do = %v", err)
		}
		must(t, b.Drain(t.Context()))
		b.commit, b.rollback = nil, nil
		must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := b.book(ctx, "a")
			return err
		}))
		b.booked(t, 1, 1)
	})
}

// An execution that has lost its record, without knowing it yet, neither runs the
// phase nor commits.
func TestW44_ZombiesPhaseTxDoesNotRun(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	x := b.begins(t)
	heir := b.state(t).Update()
	heir.Owner, heir.Overwrite, heir.Attempt, heir.Term = retrysafe.Owner{7}, true, 2, time.Hour
	_, err := b.mem.Swap(t.Context(), heir)
	must(t, err)
	if _, err := b.book(x.Context(), "a"); !errors.Is(err, retrysafe.ErrLost) || context.Cause(x.Context()) == nil {
		t.Errorf("the zombie's PhaseTx = %v", err)
	}
	b.booked(t, 0, 0)
}

// An execution that is settled while a phase is on its way.
func TestPhaseOfAnExecutionThatIsSettledMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	x := b.begins(t)
	if _, err := retrysafe.Phase(x.Context(), "a", func(ctx context.Context) (int, error) { return 1, x.Release(ctx, nil) }); !errors.Is(err, retrysafe.ErrSettled) {
		t.Errorf("Phase = %v", err)
	}
	x = b.begins(t)
	b.begin = func(ctx context.Context) error { return x.Release(ctx, nil) }
	if _, err := b.book(x.Context(), "a"); !errors.Is(err, retrysafe.ErrSettled) {
		t.Errorf("PhaseTx = %v", err)
	}
	b.booked(t, 0, 0)
	if got := b.names(t); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
}

// The record is locked while the phase runs, for as long as that takes: its owner is
// not taken for dead, though no heartbeat is sent.
func TestPhaseTxOutlivesItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, resumes)
		b.fn = func(ctx context.Context, _ *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(3 * b.Policy().Lease)
			x, out, err := b.Begin(t.Context(), call())
			if x != nil || out != nil || err == nil {
				t.Errorf("meanwhile Begin = %v, %v", x, out)
			}
			return retrysafe.Result{}, ctx.Err()
		}
		must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := b.book(ctx, "a")
			return err
		}))
		b.booked(t, 1, 1)
	})
}

// A beat whose reply was lost, or a sweeper that came too early, has moved the record.
func TestPhaseTxGoesOnFromItsOwnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, resumes)
		must(t, b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
			time.Sleep(11 * time.Second)
			_, err := b.book(ctx, "a")
			must(t, err)
			r := b.state(t).Update()
			r.State, r.ProviderRef, r.Term = retrysafe.StateUnknown, "ch_1", time.Hour
			_, err = b.mem.Swap(ctx, r)
			must(t, err)
			_, err = b.book(ctx, "b")
			return err
		}))
		b.booked(t, 2, 2)
		if r := b.state(t); r.ProviderRef != "ch_1" {
			t.Errorf("a ProviderRef that was found out meanwhile is lost: %q", r.ProviderRef)
		}
	})
}

func TestPhaseTxWaitsForAStoreThatFailsOrIsBusy(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, fail := range map[string]func(b *bank, times int){
		"begin":   func(b *bank, n int) { b.begin = func(context.Context) error { return failing(&n, broken) } },
		"reserve": func(b *bank, n int) { b.reserve = func(context.Context) error { return failing(&n, broken) } },
		"busy": func(b *bank, n int) {
			b.reserve = func(context.Context) error { return failing(&n, retrysafe.ErrBusy) }
		},
		"lock": func(b *bank, n int) { b.store = func(retrysafe.Write) error { return failing(&n, broken) } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, resumes)
				fail(b, 3)
				book := func(ctx context.Context, _ *retrysafe.Execution) error {
					_, err := b.book(ctx, "a")
					return err
				}
				must(t, b.attempt(t, book))
				b.booked(t, 1, 1)

				other := newBank(t, resumes)
				fail(other, 1000)
				err := other.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
					_, err := other.book(ctx, "a")
					return err
				})
				if !errors.Is(err, broken) && !errors.Is(err, retrysafe.ErrBusy) {
					t.Errorf("Do = %v", err)
				}
				other.booked(t, 0, 0)
			})
		})
	}
}

// failing fails n times with err.
func failing(n *int, err error) error {
	if *n--; *n < 0 {
		return nil
	}
	return err
}

func TestPhaseTxOfAnotherStoreIsRefused(t *testing.T) {
	t.Parallel()
	b, other := newBank(t, resumes), newBank(t, resumes)
	if err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := other.book(ctx, "a")
		return err
	}); !errors.Is(err, retrysafe.ErrPhases) || !strings.Contains(err.Error(), "must be the engine's own") {
		t.Errorf("Do = %v", err)
	}
	other.booked(t, 0, 0)
}

func TestPhaseTxResultThatIsTooLargeIsRolledBack(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	if err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := retrysafe.PhaseTx(ctx, b, "a", func(_ context.Context, tx *memstore.Tx) (string, error) {
			tx.OnCommit(func() { b.rows.Add(1) })
			return strings.Repeat("x", 256<<10), nil
		})
		return err
	}); !errors.Is(err, retrysafe.ErrPhases) {
		t.Error(err)
	}
	b.booked(t, 0, 0)
}

func TestPhaseTxWithoutAnExecutionIsAPlainTransaction(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	got, err := b.book(t.Context(), "a")
	if got != "a" || err != nil {
		t.Errorf("PhaseTx = %q, %v", got, err)
	}
	b.booked(t, 1, 1)
	no := errors.New("no")
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) { return retrysafe.Result{}, no }
	if got, err := b.book(t.Context(), "a"); got != "" || !errors.Is(err, no) {
		t.Errorf("PhaseTx = %q, %v", got, err)
	}
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) { panic(no) }
	rolledBack := false
	b.rollback = func(tx *memstore.Tx) error {
		rolledBack = true
		return tx.Rollback(t.Context())
	}
	func() {
		defer func() {
			if recover() != no || !rolledBack { //nolint:errorlint // the very panic
				t.Error("the panic is lost, or its transaction open")
			}
		}()
		_, _ = b.book(t.Context(), "a")
	}()
	b.fn, b.commit = nil, func(context.Context, *memstore.Tx) error { return no }
	if got, err := b.book(t.Context(), "a"); got != "" || !errors.Is(err, no) {
		t.Errorf("PhaseTx = %q, %v", got, err)
	}
	b.begin = func(context.Context) error { return no }
	if _, err := b.book(t.Context(), "a"); !errors.Is(err, no) {
		t.Errorf("PhaseTx = %v", err)
	}
	b.booked(t, 4, 1)
}

// A result that cannot be stored is no result: the writes are rolled back with it.
func TestPhaseTxWhoseResultIsNoJSONIsRolledBack(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	err := b.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := retrysafe.PhaseTx(ctx, b, "a", func(_ context.Context, tx *memstore.Tx) (func(), error) {
			b.runs.Add(1)
			tx.OnCommit(func() { b.rows.Add(1) })
			return func() {}, nil
		})
		return err
	})
	if err == nil || b.state(t).State != retrysafe.StateRetryable || len(b.names(t)) != 0 {
		t.Errorf("Do = %v; the record is %s, %q", err, b.state(t).State, b.names(t))
	}
	b.booked(t, 1, 0)
}

// A transaction that was found to have rolled back leaves nothing in doubt, also where the
// effects are unprotected: the key may be released.
func TestPhaseTxThatRolledBackLeavesNothingInDoubt(t *testing.T) {
	t.Parallel()
	b := newBank(t, retrysafe.Policy{})
	b.commit = func(ctx context.Context, tx *memstore.Tx) error { return errors.Join(tx.Rollback(ctx), errLine) }
	x := b.begins(t)
	if _, err := b.book(x.Context(), "a"); !errors.Is(err, errLine) {
		t.Errorf("PhaseTx = %v", err)
	}
	must(t, x.Release(t.Context(), errLine))
	if got := b.state(t).State; got != retrysafe.StateRetryable {
		t.Errorf("it is %s, want retryable", got)
	}
	b.booked(t, 1, 0)
}

// Another process has settled the attempt, or only taken it for unknown. The first runs no
// phase any more, although the record still has its owner; the second goes on, and what was
// asked about it meanwhile no longer counts.
func TestPhaseTxOfAnAttemptThatAnotherProcessHasMoved(t *testing.T) {
	t.Parallel()
	for state, goesOn := range map[retrysafe.State]bool{retrysafe.StateRetryable: false, retrysafe.StateAccepted: false, retrysafe.StateUnknown: true} {
		b := newBank(t, inTx)
		x := b.begins(t)
		w := b.state(t).Update()
		w.State, w.Term, w.Inquiry.Tries, w.Inquiry.Dead = state, time.Hour, 3, true
		moved, err := b.mem.Swap(t.Context(), w)
		must(t, err)
		ran := false
		_, err = retrysafe.PhaseTx(x.Context(), b, "book", func(context.Context, *memstore.Tx) (int, error) { ran = true; return 1, nil })
		got := b.state(t)
		switch {
		case goesOn && (err != nil || !ran || got.Inquiry.Tries != 0 || got.Inquiry.Dead):
			t.Errorf("%s: PhaseTx = %v, ran: %t; the inquiry is %+v", state, err, ran, got.Inquiry)
		case !goesOn && (!errors.Is(err, retrysafe.ErrLost) || ran || got.Revision != moved.Revision):
			t.Errorf("%s: PhaseTx = %v, ran: %t; it is %s", state, err, ran, got.State)
		}
	}
}

// A function that ended its transaction itself and then failed may have written: its phase is
// not tried again in this attempt. Without an execution, one that fails is rolled back.
func TestPhaseTxThatFailsAfterACommitOfItsOwnIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	x := b.begins(t)
	runs, rolledBack := 0, 0
	failure := errors.New("the mail was refused")
	for i := range 2 {
		_, err := retrysafe.PhaseTx(x.Context(), b, "book", func(ctx context.Context, tx *memstore.Tx) (int, error) {
			runs++
			must(t, tx.Commit(ctx))
			return 0, failure
		})
		if runs != 1 || i == 0 && !errors.Is(err, failure) || i == 1 && !errors.Is(err, retrysafe.ErrPhases) {
			t.Errorf("try %d: PhaseTx = %v after %d runs", i+1, err, runs)
		}
	}
	b.rollback = func(tx *memstore.Tx) error { rolledBack++; return tx.Rollback(t.Context()) }
	if _, err := retrysafe.PhaseTx(t.Context(), b, "book", func(context.Context, *memstore.Tx) (int, error) { return 0, failure }); !errors.Is(err, failure) || rolledBack != 1 {
		t.Errorf("without an execution: PhaseTx = %v, rolled back %d times", err, rolledBack)
	}
	must(t, x.Quarantine(t.Context(), nil))
}

// An attempt that was taken for unknown too early goes on: what was noted of it stays, and
// what was asked about it counts no longer.
func TestPhaseTxOfAnAttemptThatWasGivenUpTooEarly(t *testing.T) {
	t.Parallel()
	b := newBank(t, resumes)
	x := b.begins(t)
	w := b.state(t).Update()
	w.State, w.Term, w.Inquiry.Tries = retrysafe.StateUnknown, time.Hour, 3
	w.AddNote(retrysafe.Note{By: "sweeper", Text: "lease lapsed"})
	_, err := b.mem.Swap(t.Context(), w)
	must(t, err)
	_, err = b.book(x.Context(), "a")
	must(t, err)
	if q := b.state(t).Inquiry; q.Tries != 0 || len(q.Notes) != 1 {
		t.Errorf("the record has the inquiry %+v", q)
	}
	must(t, x.Complete(t.Context(), answer("done")))
}

// A record that cannot be read does not become readable: PhaseTx does not try again.
func TestPhaseTxOfARecordThatCannotBeReadFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, resumes)
		x := b.begins(t)
		b.reserve = func(context.Context) error { return retrysafe.ErrUnreadable }
		began := time.Now()
		if _, err := b.book(x.Context(), "a"); !errors.Is(err, retrysafe.ErrUnreadable) || time.Since(began) != 0 {
			t.Errorf("PhaseTx = %v after %v", err, time.Since(began))
		}
		must(t, x.Release(t.Context(), nil))
	})
}
