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

// session is a connection that the store keeps for itself, with its prepared statements.
// It is not safe for concurrent use.
type session struct {
	db *sql.DB
	// lend returns the connection to the pool after each transaction, because the pool is
	// small.
	lend bool

	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// busyTimeout is how long the connection was configured to wait for the write lock.
	// The session sets the connection's own timeout to zero and waits itself.
	busyTimeout time.Duration
	// autoCheckpoint is at how many pages of the log the connection was configured to copy
	// them into the file.
	autoCheckpoint int64
}

// tx runs do in a transaction. Once begun, the transaction does not end with ctx: its
// statements are short, and a cancelled one would leave its outcome unknown. A
// connection on which anything failed is not used again.
func (s *session) tx(ctx context.Context, begin string, do func(context.Context, execer) error) error {
	if err := s.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err := s.begin(ctx, begin)
	if err == nil {
		err = s.finish(context.WithoutCancel(ctx), do)
	}
	if s.lend || err != nil && !isBusy(err) && !errors.Is(err, errLocked) && !errors.Is(err, errStale) {
		_ = s.close() // its error does not undo a commit
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
	if err := conn.QueryRowContext(ctx, `PRAGMA wal_autocheckpoint`).Scan(&s.autoCheckpoint); err != nil {
		return errors.Join(err, conn.Close())
	}
	if _, err := conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.conn, s.stmts, s.busyTimeout = conn, make(map[string]*sql.Stmt), time.Duration(ms)*time.Millisecond
	return nil
}

// begin begins a transaction, and waits for the write lock if it asks for it.
func (s *session) begin(ctx context.Context, begin string) error {
	return retryBusy(ctx, s.busyTimeout, func() error {
		if _, err := s.ExecContext(context.WithoutCancel(ctx), begin); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		return nil
	})
}

// retryBusy tries again, for as long as the timeout, while another connection has the
// lock. SQLite's own busy handler backs off to ten tries a second. At that rate it
// rarely hits a moment in which a process that writes all the time has released the
// lock.
func retryBusy(ctx context.Context, timeout time.Duration, try func() error) error {
	for start := time.Now(); ; {
		err := try()
		if err == nil || !isBusy(err) || time.Since(start) >= timeout {
			return err
		}
		select {
		case <-time.After(time.Duration(200+rand.IntN(1000)) * time.Microsecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// finish runs do in the transaction, and commits it or rolls it back.
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
		return fmt.Errorf("%v; roll back: %w", err, rollback) //nolint:errorlint // the outcome is unknown, so err must not be found in the chain
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
	_, err := s.conn.ExecContext(context.Background(), fmt.Sprintf(`PRAGMA busy_timeout = %d`, s.busyTimeout.Milliseconds()))
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
		return s.conn.QueryRowContext(ctx, query, args...) // it fails in the same way, and the row has the error
	}
	return stmt.QueryRowContext(ctx, args...)
}
