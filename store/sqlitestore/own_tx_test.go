package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// A transaction that the store has begun keeps the contract of any other.
func TestBegunTxContract(t *testing.T) {
	t.Parallel()
	storetest.RunTx(t, func(t *testing.T) storetest.Harness {
		s := open(t, filepath.Join(t.TempDir(), "keys.db"))
		return storetest.Harness{
			Store: s,
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, _, err := s.BeginTx(ctx)
				return tx, err
			},
			OneWriter: true,
		}
	})
}

// ledger is a store with a table of the business's own beside its keys, and an
// engine over it.
type ledger struct {
	*sqlitestore.Store
	*retrysafe.Engine
}

func newLedger(t *testing.T, path string, p retrysafe.Policy) ledger {
	t.Helper()
	s := open(t, path)
	if _, err := s.DB().ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS ledger (entry TEXT)`); err != nil {
		t.Fatal(err)
	}
	p.Effects = retrysafe.EffectsInTx
	e, err := retrysafe.New(s, unhurriedBy(p))
	if err != nil {
		t.Fatal(err)
	}
	return ledger{s, e}
}

func keyed(key string) retrysafe.Call {
	return retrysafe.Call{Ref: retrysafe.Ref{Scope: "acct_1", Key: key}, Operation: "book", Fingerprint: retrysafe.Fingerprint{Alg: 1}}
}

// book writes one entry and answers with it; before, if not nil, runs in between.
func (l ledger) book(ctx context.Context, key string, before func(context.Context, *sql.Tx) error) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, l.Engine, l.Store, keyed(key), func(ctx context.Context, tx *sql.Tx) (retrysafe.Result, error) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO ledger VALUES (?)`, key); err != nil {
			return retrysafe.Result{}, err
		}
		if before != nil {
			if err := before(ctx, tx); err != nil {
				return retrysafe.Result{}, err
			}
		}
		return retrysafe.Result{Status: 201, Body: []byte(key)}, nil
	})
}

// entries makes sure that the ledger holds so many.
func (l ledger) entries(t *testing.T, want int) {
	t.Helper()
	n := 0
	if err := l.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM ledger`).Scan(&n); err != nil || n != want {
		t.Errorf("%d entries, %v, want %d", n, err, want)
	}
}

func TestDoTxBooksOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, filepath.Join(t.TempDir(), "keys.db"), retrysafe.Policy{InFlight: retrysafe.InFlightWait})
	var answers atomic.Int32
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			key := fmt.Sprint("k", i%4)
			out, err := l.book(t.Context(), key, nil)
			switch {
			case err == nil && string(out.Body) == key:
				answers.Add(1)
			case errors.Is(err, retrysafe.ErrInFlight), errors.Is(err, retrysafe.ErrUnavailable): // a machine that is too busy
			default:
				t.Errorf("%s: %+v, %v", key, out, err)
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		if _, err := l.book(t.Context(), fmt.Sprint("k", i), nil); err != nil {
			t.Error(err)
		}
	}
	l.entries(t, 4)
}

// A duplicate does not wait for the write lock that the first one has.
func TestDuplicateBesideAnOpenTransactionIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, filepath.Join(t.TempDir(), "keys.db"), retrysafe.Policy{})
	_, err := l.book(t.Context(), "k", func(ctx context.Context, _ *sql.Tx) error {
		if _, err := l.book(ctx, "k", nil); !errors.Is(err, retrysafe.ErrInFlight) {
			t.Errorf("the duplicate got %v, want in flight", err)
		}
		tx, _, err := l.BeginTx(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Reserve(ctx, keyed("k").Ref); !errors.Is(err, retrysafe.ErrBusy) {
			t.Errorf("Reserve = %v, want ErrBusy", err)
		}
		_, err = tx.Create(ctx, retrysafe.Write{Record: retrysafe.Record{Ref: keyed("k").Ref}})
		if !errors.Is(err, retrysafe.ErrBusy) || tx.Commit(ctx) == nil {
			t.Errorf("Create = %v, want ErrBusy and no commit", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := l.book(t.Context(), "k", nil); err != nil || !out.Replayed {
		t.Errorf("the retry got %+v, %v", out, err)
	}
	l.entries(t, 1)
}

func TestDoTxFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, filepath.Join(t.TempDir(), "keys.db"), retrysafe.Policy{})
	out, err := l.book(t.Context(), "k", func(context.Context, *sql.Tx) error { return errors.New("no funds") })
	if err == nil || out.Status != 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := l.Load(t.Context(), keyed("k").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
	l.entries(t, 0)
	// Database/sql does not say how its caller has ended a transaction.
	out, err = l.book(t.Context(), "ended", func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() })
	if !errors.Is(err, retrysafe.ErrTxDone) || out.Status != 0 || !strings.Contains(err.Error(), "leave commit and rollback to DoTx") {
		t.Errorf("rolled back by the function: %+v, %v", out, err)
	}
	if r, err := l.Load(t.Context(), keyed("ended").Ref); err != nil || r.State != retrysafe.StateUnknown {
		t.Errorf("rolled back by the function: it is %s, %v", r.State, err)
	}
	if _, err := l.book(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
	l.entries(t, 1)
}

// SQLite rolls a transaction back when it interrupts a write, and what follows would be
// committed statement by statement. Neither that nor a statement of the function's own
// that ends the transaction gives an answer without its effects, or a second effect.
func TestDoTxKnowsHowSQLiteEndedTheTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t, filepath.Join(t.TempDir(), "keys.db"), retrysafe.Policy{})
	interrupted := func(ctx context.Context, tx *sql.Tx) error {
		for limit := 5 * time.Millisecond; ; limit *= 2 { // a busy machine may use it up before the statement begins
			if err := second(tx.ExecContext(ctx, `SAVEPOINT before`)); err != nil {
				return err
			}
			limited, cancel := context.WithTimeout(ctx, limit)
			_, err := tx.ExecContext(limited, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO ledger SELECT 'x' FROM n WHERE i < 0`)
			cancel()
			if _, gone := tx.ExecContext(ctx, `RELEASE before`); gone != nil {
				return err
			}
		}
	}
	failure := errors.New("no funds")
	for _, c := range []struct {
		name    string
		end     func(context.Context, *sql.Tx) error
		unknown bool
	}{
		{"interrupted", interrupted, false},
		{"interrupted and ignored", func(ctx context.Context, tx *sql.Tx) error { _ = interrupted(ctx, tx); return nil }, false},
		{"ROLLBACK", func(ctx context.Context, tx *sql.Tx) error { return second(tx.ExecContext(ctx, `ROLLBACK`)) }, false},
		{"COMMIT", func(ctx context.Context, tx *sql.Tx) error { return second(tx.ExecContext(ctx, `COMMIT`)) }, true},
		{"COMMIT and an error", func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(second(tx.ExecContext(ctx, `COMMIT`)), failure)
		}, true},
		{"goes on after ROLLBACK", func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(second(tx.ExecContext(ctx, `ROLLBACK`)), second(tx.ExecContext(ctx, `INSERT INTO ledger VALUES ('goes on after ROLLBACK')`)), failure)
		}, true},
	} {
		out, err := l.book(t.Context(), c.name, c.end)
		if err == nil || errors.Is(err, retrysafe.ErrTxDone) != c.unknown {
			t.Errorf("%s: DoTx = %+v, %v; want it unknown: %v", c.name, out, err, c.unknown)
		}
		out, err = l.book(t.Context(), c.name, nil)
		if c.unknown && !errors.Is(err, retrysafe.ErrUnknown) || !c.unknown && (err != nil || out.Replayed) {
			t.Errorf("%s: a retry gets %+v, %v", c.name, out, err)
		}
		n := 0
		if err := l.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM ledger WHERE entry = ?`, c.name).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: %d effects, %v, want 1", c.name, n, err)
		}
	}
}

// Another key waits for its turn, and no longer than its context.
func TestOtherKeysTakeTurns(t *testing.T) {
	t.Parallel()
	l := newLedger(t, filepath.Join(t.TempDir(), "keys.db"), retrysafe.Policy{})
	one, _, err := l.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Reserve(t.Context(), keyed("one").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatal(err)
	}
	two, _, err := l.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := two.Reserve(gone, keyed("two").Ref); !errors.Is(err, context.Canceled) {
		t.Errorf("Reserve = %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if out, err := l.book(t.Context(), "two", nil); err != nil || out.Replayed {
			t.Errorf("the other key got %+v, %v", out, err)
		}
	})
	if err := one.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	l.entries(t, 1)
}

// What was committed is there for another process, and what it failed at runs.
func TestDoTxSeesOtherProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	one, two := newLedger(t, path, retrysafe.Policy{}), newLedger(t, path, retrysafe.Policy{})
	if _, err := one.book(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if out, err := two.book(t.Context(), "k", nil); err != nil || !out.Replayed {
		t.Errorf("the other process got %+v, %v", out, err)
	}
	x, _, err := one.Begin(t.Context(), keyed("failed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Release(t.Context(), errors.New("no funds")); err != nil {
		t.Fatal(err)
	}
	if out, err := two.book(t.Context(), "failed", nil); err != nil || out.Attempt != 2 {
		t.Errorf("the next attempt got %+v, %v", out, err)
	}
	one.entries(t, 2)
}

func TestBeginTxOnAClosedStore(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if _, _, err := s.BeginTx(t.Context()); err == nil {
		t.Error("it began")
	}
}
