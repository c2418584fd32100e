package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var errLine = errors.New("connection lost during COMMIT")

// If another call was quicker and the transaction did not take the answer, the
// transaction is rolled back, and the record that the other call left decides.
func TestDoTxOvertaken(t *testing.T) {
	t.Parallel()
	leave := func(t *testing.T, b *bank, s retrysafe.State) {
		b.with(t, func(w *retrysafe.Write) {
			theirs := answer("theirs")
			if w.State = s; s == retrysafe.StateCompleted {
				w.Result = &theirs
			}
		})
	}
	for name, c := range map[string]struct {
		other func(*testing.T, *bank)
		want  func(retrysafe.Outcome, error) bool
	}{
		"an answer": {
			func(t *testing.T, b *bank) { leave(t, b, retrysafe.StateCompleted) },
			func(out retrysafe.Outcome, err error) bool {
				return err == nil && string(out.Body) == "theirs" && out.Replayed
			},
		},
		"an attempt": {
			func(t *testing.T, b *bank) { leave(t, b, retrysafe.StateInProgress) },
			func(_ retrysafe.Outcome, err error) bool { return errors.Is(err, retrysafe.ErrInFlight) },
		},
		"an open transaction": {
			func(t *testing.T, b *bank) {
				tx, err := b.mem.Begin(t.Context())
				must(t, err)
				_, _ = tx.Reserve(t.Context(), ref) // it is free
			},
			func(_ retrysafe.Outcome, err error) bool { return errors.Is(err, retrysafe.ErrInFlight) },
		},
		"a failure": {
			func(t *testing.T, b *bank) { leave(t, b, retrysafe.StateRetryable) },
			func(_ retrysafe.Outcome, err error) bool { return retrysafe.IsNotExecuted(err) }, // it runs once in a call
		},
		"nothing": {
			func(*testing.T, *bank) {},
			func(_ retrysafe.Outcome, err error) bool { return retrysafe.IsNotExecuted(err) },
		},
	} {
		for _, why := range []error{retrysafe.ErrExists, retrysafe.ErrBusy} {
			for _, finisher := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					b := newBank(t, inTx)
					var mine *memstore.Tx
					overtake := func() error {
						must(t, mine.Rollback(t.Context())) // a store that lets others in between
						c.other(t, b)
						return why
					}
					if finisher {
						b.finish = func(context.Context, *memstore.Tx, retrysafe.Write) error { return overtake() }
					} else {
						b.store = func(retrysafe.Write) error { return overtake() }
					}
					b.fn = func(_ context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
						mine = tx
						time.Sleep(time.Minute) // longer than the store has to answer
						return answer("booked"), nil
					}
					if out, err := b.do(t.Context(), call()); !c.want(out, err) || retrysafe.IsNotExecuted(err) && !errors.Is(err, why) {
						t.Errorf("the other left %s: DoTx = %+v, %v", name, out, err)
					}
					b.booked(t, 1, 0)
				})
			}
		}
	}
}

// told is how a commit ended whose caller is told that it failed.
var told = map[string]func(*testing.T, *bank, *memstore.Tx) (committed bool){
	"committed": func(t *testing.T, _ *bank, tx *memstore.Tx) bool { must(t, tx.Commit(t.Context())); return true },
	"rolled back": func(t *testing.T, _ *bank, tx *memstore.Tx) bool {
		must(t, tx.Rollback(t.Context()))
		return false
	},
	"hangs, then commits": func(t *testing.T, _ *bank, tx *memstore.Tx) bool {
		time.AfterFunc(2*time.Second, func() { must(t, tx.Commit(t.Context())) })
		return true
	},
	"hangs, then rolls back": func(t *testing.T, _ *bank, tx *memstore.Tx) bool {
		time.AfterFunc(2*time.Second, func() { must(t, tx.Rollback(t.Context())) })
		return false
	},
	"the store is away for a while": func(t *testing.T, b *bank, tx *memstore.Tx) bool {
		must(t, tx.Commit(t.Context()))
		back := time.Now().Add(time.Second)
		b.begin = func(context.Context) error {
			if time.Now().Before(back) {
				return faultstore.ErrInjected
			}
			return nil
		}
		return true
	},
}

// A commit failed before it reached the server, so the transaction is open and holds the key:
// it is ended first, or its end could not be found out.
func TestW32_DoTxCommitThatNeverArrivedIsRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		b.commit = func(context.Context, *memstore.Tx) error { return errLine } // the transaction stays open
		if _, err := b.do(t.Context(), call()); !retrysafe.IsNotExecuted(err) || errors.Is(err, retrysafe.ErrUnsettled) {
			t.Errorf("DoTx = %v", err)
		}
		b.free(t)
		b.booked(t, 1, 0)
	})
}

func TestW32_DoTxAmbiguousCommitIsResolved(t *testing.T) {
	t.Parallel()
	for name, end := range told {
		for _, claims := range []bool{false, true} {
			for _, finisher := range []bool{false, true} {
				if claims && finisher {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					b := newBank(t, inTx)
					if claims {
						b.with(t, func(w *retrysafe.Write) { w.State = retrysafe.StateRetryable })
					}
					var committed bool
					var lost *memstore.Tx
					lose := func(_ context.Context, tx *memstore.Tx) error {
						lost = tx
						committed = end(t, b, tx)
						return errLine
					}
					if finisher {
						b.finish = func(ctx context.Context, tx *memstore.Tx, w retrysafe.Write) error {
							_, err := tx.Create(ctx, w)
							must(t, err)
							return lose(ctx, tx)
						}
					}
					b.commit = lose
					b.rollback = func(tx *memstore.Tx) error {
						if tx == lost {
							return errLine
						}
						return tx.Rollback(t.Context())
					}
					out, err := b.do(t.Context(), call())
					switch {
					case committed && (err != nil || string(out.Body) != "booked" || out.Replayed):
						t.Errorf("%s: DoTx = %+v, %v; it committed", name, out, err)
					case !committed && (!errors.Is(err, errLine) || retrysafe.IsNotExecuted(err) == finisher || errors.Is(err, retrysafe.ErrUnsettled)):
						t.Errorf("%s: DoTx = %+v, %v; it rolled back", name, out, err)
					}
					b.commit, b.finish = nil, nil
					out, err = b.do(t.Context(), call())
					must(t, err)
					if out.Replayed != committed {
						t.Errorf("%s: the retry got %+v", name, out)
					}
					b.booked(t, map[bool]int32{true: 1, false: 2}[committed], 1)
				})
			}
		}
	}
}

func TestW32_DoTxCommitThatHangsForeverIsUnsettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		var hangs *memstore.Tx
		b.commit = func(ctx context.Context, tx *memstore.Tx) error {
			hangs = tx
			<-ctx.Done() // the store's time limit
			return ctx.Err()
		}
		b.rollback = func(tx *memstore.Tx) error {
			if tx == hangs {
				return errLine
			}
			return tx.Rollback(t.Context())
		}
		start := time.Now()
		_, err := b.do(t.Context(), call())
		if took := time.Since(start); !errors.Is(err, retrysafe.ErrUnsettled) || retrysafe.IsNotExecuted(err) || took > 5*time.Second {
			t.Errorf("DoTx = %v after %v", err, took)
		}
		if b.saw(retrysafe.EventUnsettled) != 1 || b.saw(retrysafe.EventCompleted)+b.saw(retrysafe.EventReleased) != 0 {
			t.Errorf("observer saw %v", b.events)
		}
		if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
			t.Errorf("a retry meanwhile got %v", err)
		}
		must(t, hangs.Commit(t.Context()))
		if out, err := b.do(t.Context(), call()); err != nil || !out.Replayed {
			t.Errorf("a retry afterwards got %+v, %v", out, err)
		}
		b.booked(t, 1, 1)
	})
}

// The transaction rolled back, and another call has the key since.
func TestW32_DoTxRolledBackAndTakenByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, inTx)
		b.commit = func(_ context.Context, tx *memstore.Tx) error {
			must(t, tx.Rollback(t.Context()))
			b.commit, b.fn = nil, nil
			out, err := b.do(t.Context(), call())
			if err != nil || out.Replayed {
				t.Errorf("the other one's DoTx = %+v, %v", out, err)
			}
			return errLine
		}
		b.rollback = func(tx *memstore.Tx) error { _ = tx.Rollback(t.Context()); return nil }
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			time.Sleep(time.Minute) // longer than the store has to answer
			return answer("mine"), nil
		}
		if out, err := b.do(t.Context(), call()); err != nil || string(out.Body) != "booked" || !out.Replayed {
			t.Errorf("DoTx = %+v, %v; want the answer of the one that committed", out, err)
		}
		b.booked(t, 2, 1)
	})
}

// What the record says now is not what was committed: no answer is shown.
func TestW32_DoTxRecordChangedSince(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.commit = func(_ context.Context, tx *memstore.Tx) error {
		must(t, tx.Commit(t.Context()))
		r := b.state(t).Update()
		r.State, r.Result, r.Term = retrysafe.StateExpired, nil, time.Hour
		_, err := b.mem.Swap(t.Context(), r)
		must(t, err)
		return errLine
	}
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrLost) || b.saw(retrysafe.EventLost) != 1 {
		t.Errorf("DoTx = %v", err)
	}
}

// When the answer may have been forgotten already, its absence proves nothing.
func TestW32_DoTxAbsenceOfAnExpiredAnswerProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Retention: time.Millisecond})
		b.commit = func(_ context.Context, tx *memstore.Tx) error {
			must(t, tx.Commit(t.Context()))
			time.Sleep(time.Second)
			if n, err := b.mem.Purge(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("Purge = %d, %v", n, err)
			}
			return errLine
		}
		if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnsettled) || retrysafe.IsNotExecuted(err) {
			t.Errorf("DoTx = %v", err)
		}
		b.booked(t, 1, 1)
	})
}

// Whatever goes wrong, and however calls of either kind get into each other's way,
// the operation is booked once, and all that are told an answer are told the same.
func TestDoTxRandomSchedulesBookOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { randomSchedule(t, seed) })
	}
}

func randomSchedule(t *testing.T, seed uint64) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	nap := func() { time.Sleep(time.Duration(roll(1000)) * time.Millisecond) }
	b := newBank(t, retrysafe.Policy{
		Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun, Lease: 5 * time.Second, InFlight: retrysafe.InFlightConflict + retrysafe.InFlightPolicy(roll(2)), Wait: time.Second,
	})
	b.seenInTx(t)
	var lost sync.Map // transactions whose connection is gone
	b.begin = func(context.Context) error {
		if roll(12) == 0 {
			return faultstore.ErrInjected
		}
		return nil
	}
	b.store = func(retrysafe.Write) error { return b.begin(t.Context()) }
	b.commit = func(ctx context.Context, tx *memstore.Tx) error {
		end := tx.Commit
		how := roll(8)
		if how%2 == 1 {
			end = tx.Rollback
		}
		switch how {
		case 0, 1: // at once, and its reply is lost
			_ = end(ctx)
		case 2, 3: // later
			time.AfterFunc(time.Duration(roll(6000))*time.Millisecond, func() { _ = end(context.Background()) })
		default:
			return tx.Commit(ctx)
		}
		lost.Store(tx, true)
		return errLine
	}
	b.rollback = func(tx *memstore.Tx) error {
		if _, ok := lost.Load(tx); ok {
			return errLine
		}
		return tx.Rollback(context.Background())
	}
	var made atomic.Int32
	operate := func() (retrysafe.Result, error) {
		nap()
		if roll(4) == 0 {
			return retrysafe.Result{}, errors.New("no funds")
		}
		return answer(fmt.Sprint("run ", made.Add(1))), nil
	}
	b.fn = func(ctx context.Context, _ *memstore.Tx) (result retrysafe.Result, err error) {
		result, err = operate()
		*ctx.Value(valueKey{}).(*string) = string(result.Body)
		return result, err
	}
	twoSteps := func() (retrysafe.Outcome, error) {
		return b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			result, err := operate()
			if err != nil {
				return result, retrysafe.NotExecuted(err) // no transaction has begun
			}
			tx, err := b.mem.Begin(ctx)
			if err != nil {
				return result, err
			}
			tx.OnCommit(func() { b.rows.Add(1) })
			if err := x.CompleteTx(ctx, tx, result); err != nil {
				return result, err
			}
			return result, b.commit(ctx, tx)
		})
	}
	answers, undone := make(chan string, 100), make(chan string, 100)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 10 {
				nap()
				var out retrysafe.Outcome
				var err error
				var mine string
				if i%3 == 0 {
					out, err = twoSteps()
				} else {
					out, err = b.do(context.WithValue(t.Context(), valueKey{}, &mine), call())
				}
				switch {
				case err == nil:
					answers <- string(out.Body)
				case retrysafe.IsNotExecuted(err):
					undone <- mine
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute) // what hangs has ended, what was left has lapsed
	b.begin, b.store, b.commit, b.fn = nil, nil, nil, nil
	last, err := b.do(t.Context(), call())
	if err != nil || b.rows.Load() != 1 {
		t.Errorf("seed %d: in the end DoTx = %v, booked %d times", seed, err, b.rows.Load())
	}
	close(answers)
	close(undone)
	for body := range undone {
		if body == string(last.Body) {
			t.Errorf("seed %d: one was told that %q did not happen", seed, body)
		}
	}
	for body := range answers {
		if body != string(last.Body) {
			t.Errorf("seed %d: one was told %q, another %q", seed, body, last.Body)
		}
	}
}
