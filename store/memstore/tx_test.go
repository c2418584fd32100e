package memstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func begin(t *testing.T, s *memstore.Store) *memstore.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestBusinessWritesCommitWithTheAnswer(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k"))
	var ledger []string
	tx := begin(t, s)
	tx.OnCommit(func() { ledger = append(ledger, "debit") })
	mustSwap(t, tx, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
	tx.OnCommit(func() { ledger = append(ledger, "credit") })
	if len(ledger) > 0 {
		t.Fatalf("written before the commit: %q", ledger)
	}
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	if want := []string{"debit", "credit"}; !slices.Equal(ledger, want) {
		t.Errorf("got %q, want %q", ledger, want)
	}
	tx.OnCommit(func() { t.Error("written after the commit") })
	wantErr(t, "second Commit", tx.Commit(t.Context()), retrysafe.ErrTxDone)
}

func TestBusinessWritesAreDroppedWithoutACommit(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *memstore.Tx){
		"rolled back": func(t *testing.T, tx *memstore.Tx) { wantErr(t, "Rollback", tx.Rollback(t.Context()), nil) },
		"poisoned": func(t *testing.T, tx *memstore.Tx) {
			_, err := tx.Swap(t.Context(), reservation("absent"))
			wantErr(t, "Swap", err, retrysafe.ErrNotFound)
			wantErr(t, "Commit", tx.Commit(t.Context()), retrysafe.ErrNotFound)
		},
	} {
		s := memstore.New(nil)
		r := mustCreate(t, s, reservation("k"))
		tx := begin(t, s)
		tx.OnCommit(func() { t.Errorf("%s: written", name) })
		mustSwap(t, tx, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
		end(t, tx)
		if got, _ := s.Load(t.Context(), r.Ref); got.Revision != r.Revision {
			t.Errorf("%s: the record changed", name)
		}
		wantErr(t, "Rollback after the end", tx.Rollback(t.Context()), retrysafe.ErrTxDone)
		mustSwap(t, s, moved(r.Update(), retrysafe.StateCompleted, time.Hour)) // its key is free
	}
}

func TestPanicOfABusinessWriteRollsBack(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k"))
	tx := begin(t, s)
	mustSwap(t, tx, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
	if _, err := tx.Create(t.Context(), reservation("new")); err != nil {
		t.Fatal(err)
	}
	tx.OnCommit(func() { panic("no funds") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		tx.Commit(t.Context())
	}()
	if got, _ := s.Load(t.Context(), r.Ref); got.Revision != r.Revision {
		t.Error("the record changed")
	}
	mustCreate(t, s, reservation("new"))
	mustSwap(t, s, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
}

// A reader that sees the answer sees the business write, and the other way round.
func TestAnswerAndBusinessWriteAppearTogether(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	for range 200 {
		a, b := reservation("a"), reservation("b")
		var mu sync.Mutex
		paid := false
		isPaid := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return paid
		}
		stored := func(r retrysafe.Write) bool {
			_, err := s.Load(t.Context(), r.Ref)
			return err == nil
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for done := false; !done; {
					paidBefore := isPaid()
					first, second := stored(a), stored(b)
					done = second
					if paidBefore && !first || first && !second || first && !isPaid() {
						t.Errorf("half a commit is seen: paid %t, first %t, second %t", paidBefore, first, second)
						return
					}
				}
			})
		}
		tx := begin(t, s)
		for _, r := range []retrysafe.Write{a, b} {
			if _, err := tx.Create(t.Context(), moved(r, retrysafe.StateCompleted, -time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		tx.OnCommit(func() {
			mu.Lock()
			defer mu.Unlock()
			paid = true
		})
		wantErr(t, "Commit", tx.Commit(t.Context()), nil)
		wg.Wait()
		if n, err := s.Purge(t.Context(), 10); n != 2 || err != nil {
			t.Fatalf("Purge: got %d, %v, want 2", n, err)
		}
	}
}

func TestSwapWaitsForTheTransactionThatHoldsTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := mustCreate(t, s, reservation("k"))
		tx := begin(t, s)
		mustSwap(t, tx, moved(r.Update(), retrysafe.StateCompleted, time.Hour))

		// It waits as long as its context allows,
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := s.Swap(ctx, moved(r.Update(), retrysafe.StateUnknown, time.Hour))
		wantErr(t, "Swap beside an open transaction", err, context.DeadlineExceeded)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("Swap waited %v, want a minute", waited)
		}

		// and no longer than the transaction.
		replies := make(chan error)
		go func() {
			_, err := s.Swap(t.Context(), moved(r.Update(), retrysafe.StateUnknown, time.Hour))
			replies <- err
		}()
		synctest.Wait()
		select {
		case err := <-replies:
			t.Fatalf("Swap did not wait: %v", err)
		default:
		}
		time.Sleep(time.Hour)
		wantErr(t, "Rollback", tx.Rollback(t.Context()), nil)
		wantErr(t, "Swap after the rollback", <-replies, nil)
		got, err := s.Load(t.Context(), r.Ref)
		if err != nil || got.UpdatedAt.Sub(start) < time.Hour {
			t.Errorf("the Swap that waited is dated %v after the start, %v; want an hour and more", got.UpdatedAt.Sub(start), err)
		}
	})
}

func TestTransactionsNeverWait(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k")).Update()
	one := begin(t, s)
	if _, err := one.Reserve(t.Context(), r.Ref); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Reserve(t.Context(), reservation("free").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatal(err)
	}
	for step, call := range map[string]func(*memstore.Tx) error{
		"Swap":   func(tx *memstore.Tx) error { _, err := tx.Swap(t.Context(), r); return err },
		"Create": func(tx *memstore.Tx) error { _, err := tx.Create(t.Context(), reservation("free")); return err },
	} {
		two := begin(t, s)
		wantErr(t, step, call(two), retrysafe.ErrBusy)
		_, err := two.Reserve(t.Context(), reservation("other").Ref)
		wantErr(t, "step after "+step, err, retrysafe.ErrBusy)
		_, err = two.Create(t.Context(), reservation("other"))
		wantErr(t, "step after "+step, err, retrysafe.ErrBusy)
		wantErr(t, "Commit after "+step, two.Commit(t.Context()), retrysafe.ErrBusy)
	}
}

func TestTransactionSeesItsOwnSteps(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	tx := begin(t, s)
	created, err := tx.Create(t.Context(), reservation("k"))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := tx.Reserve(t.Context(), created.Ref)
	if err != nil || seen.Revision != created.Revision {
		t.Fatalf("Reserve: got revision %d, %v, want %d", seen.Revision, err, created.Revision)
	}
	swapped := mustSwap(t, tx, moved(created.Update(), retrysafe.StateUnknown, time.Hour))
	swapped = mustSwap(t, tx, moved(swapped.Update(), retrysafe.StateCompleted, time.Hour))
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	got, err := s.Load(t.Context(), created.Ref)
	if err != nil || got.Revision != swapped.Revision || got.State != retrysafe.StateCompleted {
		t.Errorf("after commit: got revision %d in state %v, %v, want %d", got.Revision, got.State, err, swapped.Revision)
	}
	tx = begin(t, s)
	_, err = tx.Create(t.Context(), reservation("k"))
	wantErr(t, "Create of a key that exists", err, retrysafe.ErrExists)
}

func TestTransactionAndContexts(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	tx := begin(t, s)
	mustSwap(t, tx, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
	wantErr(t, "cancelled Commit", tx.Commit(ctx), context.Canceled)
	if got, _ := s.Load(t.Context(), r.Ref); got.Revision != r.Revision {
		t.Error("a cancelled Commit committed")
	}
	_, err := tx.Reserve(ctx, reservation("other").Ref)
	wantErr(t, "cancelled Reserve", err, context.Canceled)
	wantErr(t, "cancelled Rollback", tx.Rollback(ctx), nil)

	// A step that was not taken poisons, whatever kept it from being taken.
	tx = begin(t, s)
	_, err = tx.Swap(ctx, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
	wantErr(t, "cancelled Swap", err, context.Canceled)
	wantErr(t, "Commit after it", tx.Commit(t.Context()), context.Canceled)
	mustSwap(t, s, moved(r.Update(), retrysafe.StateCompleted, time.Hour))
}

func TestPurgeLeavesWhatATransactionHolds(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now})
	r := mustCreate(t, s, moved(reservation("k"), retrysafe.StateRetryable, time.Minute))
	c.Advance(time.Hour)
	tx := begin(t, s)
	if _, err := tx.Reserve(t.Context(), r.Ref); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("Purge of a held record: got %d, %v", n, err)
	}
	claim := moved(r.Update(), retrysafe.StateCompleted, time.Minute)
	claim.Owner, claim.Overwrite, claim.Attempt = retrysafe.Owner{9}, true, 2
	mustSwap(t, tx, claim)
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("Purge of a record that is no longer due: got %d, %v", n, err)
	}
	c.Advance(time.Hour)
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("Purge: got %d, %v, want 1", n, err)
	}
}

// A transaction takes its room when it takes its steps, and a rollback gives
// it back.
func TestTransactionTakesRoom(t *testing.T) {
	t.Parallel()
	s := memstore.New(&memstore.Options{MaxRecords: 3, MaxBytes: 100_000})
	running := mustCreate(t, s, reservation("running"))
	large := func(r retrysafe.Record, n int) retrysafe.Write {
		return saved(r, retrysafe.Checkpoint{Phase: "p", Data: make([]byte, n)})
	}
	for range 3 {
		tx := begin(t, s)
		for _, key := range []string{"a", "b"} {
			if _, err := tx.Create(t.Context(), reservation(key)); err != nil {
				t.Fatal(err)
			}
		}
		r := mustSwap(t, tx, large(running, 90_000))
		r = mustSwap(t, tx, large(r, 50_000))
		mustSwap(t, tx, large(r, 90_000))
		_, err := s.Create(t.Context(), reservation("c"))
		wantErr(t, "Create beside the transaction", err, retrysafe.ErrFull)
		wantErr(t, "Rollback", tx.Rollback(t.Context()), nil)
	}
	tx := begin(t, s)
	_, err := tx.Swap(t.Context(), large(running, 101_000))
	wantErr(t, "Swap that is too large", err, retrysafe.ErrFull)
	wantErr(t, "Commit", tx.Commit(t.Context()), retrysafe.ErrFull)

	// What a commit shrinks is free.
	running = mustSwap(t, s, large(running, 80_000))
	tx = begin(t, s)
	mustSwap(t, tx, large(running, 1))
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	tx = begin(t, s)
	wide := reservation("a")
	wide.Request = make([]byte, 80_000)
	if _, err := tx.Create(t.Context(), wide); err != nil {
		t.Fatal(err)
	}
	_, err = tx.Create(t.Context(), wide)
	wantErr(t, "Create of its own key", err, retrysafe.ErrExists)
	wantErr(t, "Rollback", tx.Rollback(t.Context()), nil)
	tx = begin(t, s)
	wide.Request = make([]byte, 100_000)
	_, err = tx.Create(t.Context(), wide)
	wantErr(t, "Create that is too large", err, retrysafe.ErrFull)
}
