package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/retrysafe/retrysafe/internal/sqltx"
)

// open returns a database with one connection and a table.
func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "sqltx.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE ledger (entry TEXT)`); err != nil {
		t.Fatal(err)
	}
	return db
}

// begin begins a transaction with an entry in it.
func begin(ctx context.Context, t *testing.T, db *sql.DB, rollback func(*sql.Tx) error) *sqltx.Tx {
	t.Helper()
	tx, err := sqltx.Begin(ctx, func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) }, rollback)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO ledger VALUES ('entry')`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// entries fails unless the table holds so many. It needs the connection.
func entries(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	n := 0
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM ledger`).Scan(&n); err != nil || n != want {
		t.Errorf("%d entries, %v, want %d", n, err, want)
	}
}

func TestContextThatEndsFirstRollsBack(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	released := make(chan struct{})
	tx := begin(ctx, t, db, func(tx *sql.Tx) error {
		defer close(released)
		return tx.Rollback()
	})
	cancel()
	<-released
	entries(t, db, 0) // the connection is free, and the caller has done nothing for it
	for name, err := range map[string]error{
		"Commit":       tx.Commit(),
		"ExecContext":  second(tx.ExecContext(t.Context(), `INSERT INTO ledger VALUES ('late')`)),
		"QueryContext": second(tx.QueryContext(t.Context(), `SELECT 1`)),
	} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s = %v, want it to name the context", name, err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Errorf("Rollback = %v, want nil: it is rolled back", err)
	}
	entries(t, db, 0)
}

// Until its own rollback has ended, no one else has rolled the transaction back: what that
// returns is what became of it.
func TestContextEndsNothingButByItsRollback(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	tx := begin(ctx, t, db, func(tx *sql.Tx) error {
		for range 200 { // each gives database/sql time to roll back
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO ledger VALUES ('before the rollback')`); err != nil {
				t.Errorf("before the rollback: %v", err)
				break
			}
		}
		return tx.Rollback()
	})
	cancel()
	if err := tx.Rollback(); err != nil {
		t.Errorf("Rollback = %v", err)
	}
	entries(t, db, 0)
}

func TestTransactionThatEndsFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     func(*sqltx.Tx) error
		entries int
	}{
		"by Commit":              {(*sqltx.Tx).Commit, 1},
		"by Rollback":            {(*sqltx.Tx).Rollback, 0},
		"by its user's Commit":   {func(tx *sqltx.Tx) error { return tx.Tx.Commit() }, 1},
		"by its user's Rollback": {func(tx *sqltx.Tx) error { return tx.Tx.Rollback() }, 0},
	} {
		for _, ends := range []bool{true, false} {
			db := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			tx := begin(ctx, t, db, (*sql.Tx).Rollback)
			if err := c.end(tx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if ends {
				cancel()
			}
			if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s: Rollback = %v, want ErrTxDone", name, err)
			}
			if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s: Commit = %v, want ErrTxDone", name, err)
			}
			entries(t, db, c.entries)
			cancel()
		}
	}
}

func TestContextEndsTheWaitForAConnection(t *testing.T) {
	t.Parallel()
	db := open(t)
	tx := begin(t.Context(), t, db, (*sql.Tx).Rollback) // it has the only connection
	ctx, cancel := context.WithCancel(t.Context())
	_, err := sqltx.Begin(ctx, func(ctx context.Context) (*sql.Tx, error) {
		cancel()
		return db.BeginTx(ctx, nil)
	}, (*sql.Tx).Rollback)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Begin = %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	_, err = sqltx.Begin(ctx, func(ctx context.Context) (*sql.Tx, error) {
		defer cancel() // after it has begun
		return db.BeginTx(ctx, nil)
	}, (*sql.Tx).Rollback)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Begin = %v", err)
	}
	entries(t, db, 0) // it left no transaction open
	// Nothing but Begin itself ends a transaction that was begun in another way.
	ctx, cancel = context.WithCancel(t.Context())
	_, err = sqltx.Begin(ctx, func(context.Context) (*sql.Tx, error) {
		defer cancel()
		return db.BeginTx(t.Context(), nil)
	}, (*sql.Tx).Rollback)
	if n := db.Stats().InUse; !errors.Is(err, context.Canceled) || n != 0 {
		t.Errorf("Begin = %v, and %d connections are in use", err, n)
	}
	db.Close()
	if _, err := sqltx.Begin(t.Context(), func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) }, (*sql.Tx).Rollback); err == nil {
		t.Error("it began on a closed database")
	}
}

func second[T any](_ T, err error) error { return err }
