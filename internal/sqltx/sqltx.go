// Package sqltx begins transactions of database/sql that are known to be rolled back
// when their context has ended first.
package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A Tx is a [sql.Tx] that is rolled back when the context that it was begun with ends,
// also if its user does not return. Database/sql would do the same, but then it only
// reports that the transaction has ended, which may also have been a commit by the
// user. Tx rolls back by itself, so Rollback returns nil after that.
//
// The user of the transaction gets the embedded sql.Tx. Tx itself is not safe for
// concurrent use.
type Tx struct {
	*sql.Tx
	ctx      context.Context
	cancel   context.CancelFunc // of the context that database/sql has
	keep     func() bool        // keeps the end of ctx from rolling back
	kept     bool               // keep has succeeded
	rollback func(*sql.Tx) error
	undone   chan struct{} // closed after the rollback by the end of ctx
	result   error         // of that rollback
}

// Begin begins a transaction by begin, which gets a context that ends with ctx only
// until the transaction has begun. Rollback rolls it back, and is called in another
// goroutine when ctx ends. It returns [sql.ErrTxDone] if the transaction may be
// committed.
func Begin(ctx context.Context, begin func(context.Context) (*sql.Tx, error), rollback func(*sql.Tx) error) (*Tx, error) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	limit := context.AfterFunc(ctx, cancel)
	tx, err := begin(inner)
	if !limit() { // database/sql ends what has begun
		if err == nil {
			_ = tx.Rollback()
		}
		return nil, ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	t := &Tx{Tx: tx, ctx: ctx, cancel: cancel, rollback: rollback, undone: make(chan struct{})}
	t.keep = context.AfterFunc(ctx, t.undo)
	return t, nil
}

// undo rolls back because ctx has ended.
func (t *Tx) undo() {
	defer close(t.undone)
	t.result = t.rollback(t.Tx)
	t.cancel()
}

// outlived reports whether the end of ctx has not ended the transaction. After that it
// cannot do so any more.
func (t *Tx) outlived() bool {
	if !t.kept && t.keep() {
		t.kept = true
	}
	if t.kept {
		return true
	}
	<-t.undone
	return errors.Is(t.result, sql.ErrTxDone) // its user had ended it
}

// Commit commits.
func (t *Tx) Commit() error {
	if !t.outlived() {
		return t.late()
	}
	defer t.cancel()
	return t.Tx.Commit()
}

// Rollback rolls back. It returns [sql.ErrTxDone] if the transaction was committed, or
// was rolled back by its user.
func (t *Tx) Rollback() error {
	if !t.outlived() {
		return t.result
	}
	defer t.cancel()
	return t.rollback(t.Tx)
}

// ExecContext runs a statement.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	done, err := t.Tx.ExecContext(ctx, query, args...)
	return done, t.Explain(err)
}

// QueryContext runs a query.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := t.Tx.QueryContext(ctx, query, args...)
	return rows, t.Explain(err)
}

// Explain returns the error of a statement. If it is [sql.ErrTxDone] and the end of ctx
// has rolled back, the error says that instead.
func (t *Tx) Explain(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !t.outlived() {
		return t.late()
	}
	return err
}

// late is the error of a step after the end of ctx.
func (t *Tx) late() error {
	return fmt.Errorf("the transaction was rolled back when its context ended: %w", t.ctx.Err())
}
