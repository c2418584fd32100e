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
	"github.com/retrysafe/retrysafe/outbox"
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

// endingContext ends when it is looked at for the nth time.
type endingContext struct {
	context.Context
	left atomic.Int32
	done chan struct{}
}

func (c *endingContext) look() (ended bool) {
	n := c.left.Add(-1)
	if n == 0 {
		close(c.done)
	}
	return n <= 0
}

func (c *endingContext) Done() <-chan struct{} {
	c.look()
	return c.done
}

func (c *endingContext) Err() error {
	if c.look() {
		return context.Canceled
	}
	return nil
}

// A step of a transaction whose context has ended is refused, and holds neither its key nor
// the turn, whether its user rolls back or not.
func TestStepAfterTheEndOfTheContextHoldsNothing(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	ref, other := keyed("k").Ref, keyed("other").Ref
	within, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, step := range map[string]func(retrysafe.Tx) error{
		"Reserve": func(tx retrysafe.Tx) error { return second(tx.Reserve(within, ref)) },
		"Create":  func(tx retrysafe.Tx) error { return second(tx.Create(within, fresh("k"))) },
		"Enqueue": func(tx retrysafe.Tx) error {
			return tx.(outbox.Enqueuer).Enqueue(within, outbox.Message{Topic: "t"})
		},
		"Reserve that does not get the turn": func(tx retrysafe.Tx) error {
			first, _, err := s.BeginTx(within)
			must(t, err)
			defer first.Rollback(within)
			if _, err := first.Reserve(within, other); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("Reserve of another key = %v", err)
			}
			return second(tx.Reserve(gone, ref))
		},
	} {
		ctx, end := context.WithCancel(t.Context())
		late, _, err := s.BeginTx(ctx)
		must(t, err)
		end()
		if late.Commit(within) == nil { // it waits until the end of the context has rolled back
			t.Errorf("%s: a transaction whose context has ended commits", name)
		}
		if err := step(late); err == nil || errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("%s after the end of the context = %v", name, err)
		}
		tx, _, err := s.BeginTx(within)
		must(t, err)
		if _, err := tx.Reserve(within, ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("%s after the end of the context: another transaction gets %v", name, err)
		}
		must(t, tx.Rollback(within))
	}
}

// A step that waits for the write lock of another process waits no longer than its context.
func TestWaitForTheLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	other := patient(t, path)
	db, err := sql.Open("sqlite", waitingDSN(path, 24*time.Hour))
	must(t, err)
	defer db.Close()
	s, err := sqlitestore.New(t.Context(), db, nil)
	must(t, err)
	tx, err := other.DB().BeginTx(t.Context(), nil) // it takes the lock
	must(t, err)
	ctx := &endingContext{Context: t.Context(), done: make(chan struct{})}
	ctx.left.Store(50)
	if _, err := s.Outbox().Lease(ctx, retrysafe.Owner{1}, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Lease = %v", err)
	}
	must(t, tx.Rollback())
	must(t, second(s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)))
	put(t, s, "k")
	must(t, s.Close())
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("a store that is closed keeps %d connections", n)
	}
}

// Wherever in BeginTx its context ends, the connection is given back.
func TestBeginTxThatFailsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	before := s.DB().Stats().InUse
	for n := range int32(20) {
		ctx := &endingContext{Context: t.Context(), done: make(chan struct{})}
		ctx.left.Store(n + 1)
		if tx, _, err := s.BeginTx(ctx); err == nil {
			_ = tx.Rollback(t.Context())
		}
	}
	for start := time.Now(); s.DB().Stats().InUse > before; time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d connections are in use, and before %d were", s.DB().Stats().InUse, before)
		}
	}
}

// Wherever in a step its context ends, also while its connection is being set up, the
// connection is given back.
func TestStepThatFailsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", patientDSN(filepath.Join(t.TempDir(), "keys.db")))
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(3) // the store keeps none of so few: each step sets one up
	s, err := sqlitestore.New(t.Context(), db, nil)
	must(t, err)
	defer s.Close()
	leased := 0
	for n := range int32(60) {
		ctx := &endingContext{Context: t.Context(), done: make(chan struct{})}
		ctx.left.Store(n + 1)
		if _, err := s.Outbox().Lease(ctx, retrysafe.Owner{1}, time.Hour); err == nil {
			leased++
		}
		for start := time.Now(); db.Stats().InUse > 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatalf("after look %d at its context %d connections are in use", n+1, db.Stats().InUse)
			}
		}
	}
	if leased == 0 || leased == 60 {
		t.Errorf("of 60 steps %d succeed: contexts that end meanwhile are not among them, or only those", leased)
	}
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
