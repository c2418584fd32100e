package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// session is a connection that the store keeps for itself, with its statements
// prepared. It is used by one at a time.
type session struct {
	db *sql.DB
	// lend gives the connection back after each transaction: others need it too.
	lend bool

	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// tx runs do in a transaction. What has begun does not end with ctx: its
// statements are short, and nobody is to wonder how far they came. A connection on
// which anything went wrong is not used again.
func (s *session) tx(ctx context.Context, begin string, do func(context.Context, execer) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.conn == nil {
		if s.conn, err = s.db.Conn(ctx); err != nil {
			s.conn = nil
			return fmt.Errorf("connect: %w", err)
		}
		s.stmts = make(map[string]*sql.Stmt)
	}
	ctx = context.WithoutCancel(ctx)
	begun, err := s.try(ctx, begin, do)
	if err != nil && begun {
		if _, rollback := s.conn.ExecContext(ctx, "ROLLBACK"); rollback != nil {
			_ = s.close()
			return fmt.Errorf("%v; roll back: %w", err, rollback) //nolint:errorlint // nobody can say how it ended, whatever err is
		}
	}
	if s.lend || err != nil && !isBusy(err) && !errors.Is(err, errLocked) {
		_ = s.close() // what is committed stays committed
	}
	return err
}

func (s *session) try(ctx context.Context, begin string, do func(context.Context, execer) error) (begun bool, err error) {
	if _, err := s.ExecContext(ctx, begin); err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	if err := do(ctx, s); err != nil {
		return true, err
	}
	if _, err := s.ExecContext(ctx, "COMMIT"); err != nil {
		return true, fmt.Errorf("commit: %w", err)
	}
	return true, nil
}

func (s *session) close() error {
	if s.conn == nil {
		return nil
	}
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	errs = append(errs, s.conn.Close())
	s.conn, s.stmts = nil, nil
	return errors.Join(errs...)
}

func (s *session) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := s.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	s.stmts[query] = stmt
	return stmt, nil
}

// ExecContext runs a prepared statement.
func (s *session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := s.prepared(ctx, query) //nolint:sqlclosecheck // it stays prepared until the session closes
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

// QueryContext runs a prepared statement.
func (s *session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := s.prepared(ctx, query) //nolint:sqlclosecheck // it stays prepared until the session closes
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// QueryRowContext runs a prepared statement.
func (s *session) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := s.prepared(ctx, query) //nolint:sqlclosecheck // it stays prepared until the session closes
	if err != nil {
		return s.conn.QueryRowContext(ctx, query, args...) // it fails the same way, and the row says so
	}
	return stmt.QueryRowContext(ctx, args...)
}
