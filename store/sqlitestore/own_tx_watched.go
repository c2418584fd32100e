package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/retrysafe/retrysafe/internal/sqltx"
)

// watchedTx is a transaction that the store has begun. It knows of each commit and each
// rollback on its connection, also of those that database/sql does not know of. A
// statement of the caller's may be one, and SQLite rolls back by itself when it
// interrupts a write because the statement's context has ended. What follows would be
// committed statement by statement: the answer without its effects.
type watchedTx struct {
	*sqltx.Tx
	conn *sql.Conn
	hooks
}

// hooks are called by SQLite.
type hooks struct {
	committed, rolledBack atomic.Bool
}

// beginWatched begins a transaction. When it was rolled back, also by the end of ctx,
// released is called.
func (s *Store) beginWatched(ctx context.Context, released func()) (*watchedTx, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &watchedTx{conn: conn}
	t.hook(func() int32 { t.committed.Store(true); return 0 }, func() { t.rolledBack.Store(true) })
	t.Tx, err = sqltx.Begin(ctx, func(ctx context.Context) (*sql.Tx, error) {
		// ReadOnly makes the driver begin without the write lock, so that a duplicate can
		// begin and learn that the key is busy. It does not keep the transaction from writing.
		return conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	}, func(tx *sql.Tx) error {
		defer released()
		defer t.close()
		return t.rollback(tx)
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *watchedTx) hook(commit sqlite.CommitHookFn, rollback sqlite.RollbackHookFn) {
	_ = t.conn.Raw(func(c any) error {
		if c, ok := c.(sqlite.HookRegisterer); ok {
			c.RegisterCommitHook(commit)
			c.RegisterRollbackHook(rollback)
		}
		return nil
	})
}

// close gives the connection back. After the first call it does nothing.
func (t *watchedTx) close() {
	t.hook(nil, nil)
	_ = t.conn.Close()
}

// errEnded: the caller has gone on after the end of the transaction.
var errEnded = fmt.Errorf("a statement has ended the transaction; return the errors of statements, and leave commit and rollback to the store: %w", sql.ErrTxDone)

// usable returns an error if the transaction has ended.
func (t *watchedTx) usable() error {
	if t.committed.Load() || t.rolledBack.Load() {
		return t.Explain(errEnded)
	}
	return nil
}

// ExecContext runs a statement of the store's.
func (t *watchedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.ExecContext(ctx, query, args...)
}

// QueryContext runs a query of the store's.
func (t *watchedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

// Commit commits.
func (t *watchedTx) Commit() error {
	defer t.close()
	return t.Tx.Commit()
}

// rollback rolls back. It returns nil if everything is rolled back, also if SQLite has
// done that before.
func (t *watchedTx) rollback(tx *sql.Tx) error {
	err := tx.Rollback()
	switch {
	case t.committed.Load():
		return sql.ErrTxDone
	case codeOf(err) == codeError && t.rolledBack.Load(): // no transaction is open
		return nil
	default:
		return err
	}
}
