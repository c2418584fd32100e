package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
)

// A replicationDoubt counts the commits that may not have reached the synchronous
// standby, and how many of them a later commit has confirmed.
//
// A commit that is cancelled while it waits for the standby is done all the same: the
// client gets a success with a warning, and every session sees what was written, which a
// failover would lose. The same holds for a commit whose reply was lost. While there is
// a doubt no answer of the server's is passed on: first a commit has to reach the
// standby. The log is sequential, so that commit confirms all commits before it.
type replicationDoubt struct {
	raised, resolved atomic.Int64
}

func (d *replicationDoubt) raise() { d.raised.Add(1) }

// open reports whether there is a doubt.
func (d *replicationDoubt) open() bool { return d.resolved.Load() < d.raised.Load() }

// resolve ends the first n doubts: a commit that was begun after them is confirmed.
func (d *replicationDoubt) resolve(n int64) {
	for old := d.resolved.Load(); old < n && !d.resolved.CompareAndSwap(old, n); old = d.resolved.Load() {
	}
}

// isWarning reports whether the server may be saying that a commit has not reached the
// standby. The text is in the server's language, and the code is one that many warnings
// share. A function of the user's that raises a warning has another routine.
func isWarning(n *pgconn.Notice) bool {
	return (n.SeverityUnlocalized == "WARNING" || n.Severity == "WARNING") && n.Routine != "exec_stmt_raise"
}

// isRefusal reports whether err is nil, or the server's word that nothing was applied.
// After any other error the outcome is unknown.
func isRefusal(err error) bool {
	if err == nil {
		return true
	}
	var e *pgconn.PgError
	return errors.As(err, &e) && e.SeverityUnlocalized == "ERROR"
}

var (
	errDoubt     = errors.New("the server warned that the commit may not have reached the standby")
	errNoCancels = errors.New("a commit is never cancelled")
)

// cancelBlocked is the custom data of a pool's connection whose warnings the store gets:
// an *atomic.Bool that says whether cancel requests are blocked at present.
const cancelBlocked = "retrysafe cancel blocked"

// watch prepares the connections of a pool for commits of the store's. Their warnings
// raise a doubt, and the driver's cancel requests, which it sends when it gives up a
// connection, can be blocked.
func (d *replicationDoubt) watch(config *pgxpool.Config) {
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if isWarning(n) {
			d.raise()
		}
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		blocked, dial := new(atomic.Bool), c.DialFunc
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if blocked.Load() {
				return nil, errNoCancels
			}
			return dial(ctx, network, addr)
		}
		c.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
			conn.CustomData()[cancelBlocked] = blocked
			return nil
		}
		return nil
	}
}

// commit runs last, which commits on a connection of the pool's. If that takes longer
// than a batch may, the connection is closed without a cancel request, so that the
// commit goes on at the server. On a pool that the store did not make there is neither
// the time limit nor the block.
func (s *Store) commit(conn *pgxpool.Conn, last func() error) error {
	pg := conn.Conn().PgConn()
	if blocked, ok := pg.CustomData()[cancelBlocked].(*atomic.Bool); ok {
		blocked.Store(true)
		limit := time.AfterFunc(s.timeout, func() { _ = pg.Conn().Close() })
		defer func() {
			if limit.Stop() && !pg.IsClosed() {
				blocked.Store(false)
			}
		}()
	}
	err := endTx(conn, last())
	if !isRefusal(err) {
		s.doubt.raise()
	}
	return err
}

// resolveDoubt returns nil when there is no doubt. If there is one it reads something on
// a connection of the store's, which confirms all commits before: see [conn.do].
func (s *Store) resolveDoubt(ctx context.Context) error {
	if !s.doubt.open() {
		return nil
	}
	if _, err := s.Load(ctx, retrysafe.Ref{}); err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
		return fmt.Errorf("confirm what was committed: %w", err)
	}
	return nil
}
