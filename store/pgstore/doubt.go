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

// A commit that waits for a synchronous standby and is cancelled there is done all
// the same: its client is told of a success, with a warning, and everybody sees
// what it wrote, which a failover would lose. So is a commit whose reply was lost.
// Until a later commit has reached the standby, nothing that the server says is
// believed.

// doubts counts the commits that may not have reached the standby, and how many
// of them a later one has vouched for: the log is sequential, so a commit that has
// reached the standby says the same of all before it.
type doubts struct {
	raised, settled atomic.Int64
}

func (d *doubts) raise() { d.raised.Add(1) }

// open reports whether there is a doubt.
func (d *doubts) open() bool { return d.settled.Load() < d.raised.Load() }

// settle ends the first n doubts: a commit that was begun after them is confirmed.
func (d *doubts) settle(n int64) {
	for old := d.settled.Load(); old < n && !d.settled.CompareAndSwap(old, n); old = d.settled.Load() {
	}
}

// warns reports whether the server may be saying that a commit has not reached the
// standby. It says so in its own language, and under a code that it shares with
// much else; what a function of the user's raises it does not say.
func warns(n *pgconn.Notice) bool {
	return (n.SeverityUnlocalized == "WARNING" || n.Severity == "WARNING") && n.Routine != "exec_stmt_raise"
}

// refuses reports whether err is the server's word that nothing was applied, or
// none at all. After any other nobody can say.
func refuses(err error) bool {
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

// hushed marks a connection of a pool whose warnings are heard, and holds whether
// cancel requests are refused at present.
const hushed = "retrysafe hushed"

// watch makes the connections of a pool fit for commits of the store's: it hears
// their warnings, and the driver, which cancels at the server whatever it gives
// up, can be kept from it.
func (d *doubts) watch(config *pgxpool.Config) {
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if warns(n) {
			d.raise()
		}
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		hush, dial := new(atomic.Bool), c.DialFunc
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if hush.Load() {
				return nil, errNoCancels
			}
			return dial(ctx, network, addr)
		}
		c.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
			conn.CustomData()[hushed] = hush
			return nil
		}
		return nil
	}
}

// commit runs last, which commits on a connection of the pool's. It takes no longer
// than a trip does, and then gives the connection up without a cancel request, so
// that the commit goes on at the server. A pool of the caller's allows neither.
func (s *Store) commit(conn *pgxpool.Conn, last func() error) error {
	pg := conn.Conn().PgConn()
	if hush, ok := pg.CustomData()[hushed].(*atomic.Bool); ok {
		hush.Store(true)
		limit := time.AfterFunc(s.timeout, func() { _ = pg.Conn().Close() })
		defer func() {
			if limit.Stop() && !pg.IsClosed() {
				hush.Store(false)
			}
		}()
	}
	err := ended(conn, last())
	if !refuses(err) {
		s.doubts.raise()
	}
	return err
}

// certain returns when no commit is in doubt: no step is answered before.
func (s *Store) certain(ctx context.Context) error {
	if !s.doubts.open() {
		return nil
	}
	if _, err := s.Load(ctx, retrysafe.Ref{}); err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
		return fmt.Errorf("confirm what was committed: %w", err)
	}
	return nil
}
