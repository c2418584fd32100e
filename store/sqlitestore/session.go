package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// writer is the connection that the store's own transactions run on, with its
// statements prepared. It is used by one of them at a time.
type writer struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// lend gives the connection back after each transaction: a pool of one must
	// serve readers too.
	lend bool
}

// inTx runs do in an IMMEDIATE transaction. The commit does not end with ctx. A
// connection on which anything went wrong is not used again.
func (w *writer) inTx(ctx context.Context, db *sql.DB, do func(*writer) error) (err error) {
	if w.conn == nil {
		if w.conn, err = db.Conn(ctx); err != nil {
			w.conn = nil
			return fmt.Errorf("connect: %w", err)
		}
		w.stmts = make(map[string]*sql.Stmt)
	}
	if _, err := w.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return errors.Join(fmt.Errorf("begin: %w", err), w.close())
	}
	if err := do(w); err != nil {
		_, rollback := w.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, rollback, w.close())
	}
	if _, err := w.ExecContext(context.WithoutCancel(ctx), "COMMIT"); err != nil {
		_, rollback := w.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(fmt.Errorf("commit: %w", err), rollback, w.close())
	}
	if w.lend {
		_ = w.close() // what is committed stays committed
	}
	return nil
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	var errs []error
	for _, s := range w.stmts {
		errs = append(errs, s.Close())
	}
	errs = append(errs, w.conn.Close())
	w.conn, w.stmts = nil, nil
	return errors.Join(errs...)
}

func (w *writer) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := w.stmts[query]; s != nil {
		return s, nil
	}
	s, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	w.stmts[query] = s
	return s, nil
}

// ExecContext runs a prepared statement.
func (w *writer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := w.prepared(ctx, query) //nolint:sqlclosecheck // it stays prepared until the writer closes
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext runs a prepared statement.
func (w *writer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := w.prepared(ctx, query) //nolint:sqlclosecheck // it stays prepared until the writer closes
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext runs a prepared statement.
func (w *writer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := w.prepared(ctx, query) //nolint:sqlclosecheck // it stays prepared until the writer closes
	if err != nil {
		return w.conn.QueryRowContext(ctx, query, args...) // it fails the same way, and the row says so
	}
	return s.QueryRowContext(ctx, args...)
}
