package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// session is a connection that the store keeps for itself, with its statements
// prepared. It is used by one at a time.
type session struct {
	db *sql.DB
	// lend gives the connection back after each transaction: others need it too.
	lend bool

	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// patience is how long the connection's busy timeout told it to wait for the
	// write lock. The session does the waiting itself.
	patience time.Duration
}

// tx runs do in a transaction. What has begun does not end with ctx: its
// statements are short, and nobody is to wonder how far they came. A connection on
// which anything went wrong is not used again.
func (s *session) tx(ctx context.Context, begin string, do func(context.Context, execer) error) error {
	if err := s.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err := s.begin(ctx, begin)
	if err == nil {
		err = s.finish(context.WithoutCancel(ctx), do)
	}
	if s.lend || err != nil && !isBusy(err) && !errors.Is(err, errLocked) {
		_ = s.close() // what is committed stays committed
	}
	return err
}

func (s *session) connect(ctx context.Context) error {
	if s.conn != nil {
		return ctx.Err()
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	var ms int64
	if err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&ms); err != nil {
		return errors.Join(err, conn.Close())
	}
	if _, err := conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.conn, s.stmts, s.patience = conn, make(map[string]*sql.Stmt), time.Duration(ms)*time.Millisecond
	return nil
}

// begin begins a transaction, and waits for the write lock if it asks for it.
func (s *session) begin(ctx context.Context, begin string) error {
	return patiently(ctx, s.patience, func() error {
		if _, err := s.ExecContext(context.WithoutCancel(ctx), begin); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		return nil
	})
}

// patiently tries again while somebody else has the lock. SQLite itself would ask
// ever more rarely, down to ten times a second, and never meet the moment in which
// another process that writes all the time has let go.
func patiently(ctx context.Context, patience time.Duration, try func() error) error {
	for start := time.Now(); ; {
		err := try()
		if err == nil || !isBusy(err) || time.Since(start) >= patience {
			return err
		}
		select {
		case <-time.After(time.Duration(200+rand.IntN(1000)) * time.Microsecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// finish does what the transaction is for, and commits it or rolls it back.
func (s *session) finish(ctx context.Context, do func(context.Context, execer) error) error {
	err := do(ctx, s)
	if err == nil {
		failpoint.Hit("sqlite.written")
		if _, err = s.ExecContext(ctx, "COMMIT"); err == nil {
			failpoint.Hit("sqlite.committed")
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	if _, rollback := s.conn.ExecContext(ctx, "ROLLBACK"); rollback != nil {
		_ = s.close()
		return fmt.Errorf("%v; roll back: %w", err, rollback) //nolint:errorlint // nobody can say how it ended, whatever err is
	}
	return err
}

func (s *session) close() error {
	if s.conn == nil {
		return nil
	}
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	_, err := s.conn.ExecContext(context.Background(), fmt.Sprintf(`PRAGMA busy_timeout = %d`, s.patience.Milliseconds()))
	errs = append(errs, err, s.conn.Close())
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
