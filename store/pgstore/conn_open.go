package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func (c *conn) isOpen() bool { return c.pg != nil && !c.pg.IsClosed() }

// connect connects, unless the connection is open.
func (c *conn) connect(ctx context.Context) error {
	if c.isOpen() {
		return nil
	}
	c.drop()
	ctx, cancel := context.WithTimeout(ctx, c.s.timeout)
	defer cancel()
	config := c.s.config.Copy()
	if c.s.beforeConnect != nil {
		if err := c.s.beforeConnect(ctx, config); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if isWarning(n) {
			c.warned.Store(true)
			c.s.doubt.raise()
		}
	}
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { c.notified.Store(true) }
	// When the driver gives up a connection it sends a cancel request over another one. It
	// must not, as do explains: once connected, no further dial succeeds.
	var connected atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancels
		}
		return dial(ctx, network, addr)
	}
	pg, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	connected.Store(true)
	c.pg, c.prepared, c.exchanges, c.listens = pg, make(map[string]*pgconn.StatementDescription), 0, false
	if c.s.pgBouncer {
		return nil
	}
	if _, err := pg.Exec(ctx, c.settings("false")).ReadAll(); err != nil {
		c.drop()
		return fmt.Errorf("set up connection: %w", err)
	}
	began := time.Now()
	if _, err := pg.Exec(ctx, "").ReadAll(); err != nil {
		c.drop()
		return fmt.Errorf("set up connection: %w", err)
	}
	c.s.way.note(time.Since(began))
	return nil
}

// A way is how long it takes to the server and back, by what new connections measure. A
// machine that is busy for a moment makes it look longer than it is, so it follows a
// shorter measurement at once, and longer ones slowly.
type way struct{ nanos atomic.Int64 }

func (w *way) note(measured time.Duration) {
	for {
		was := w.nanos.Load()
		now := int64(measured)
		if was > 0 && now > was {
			now = was + (now-was)/16
		}
		if w.nanos.CompareAndSwap(was, now) {
			return
		}
	}
}

func (w *way) roundTrip() time.Duration { return time.Duration(w.nanos.Load()) }

// settings is the statement that makes the settings of the store's statements: for the
// session, or for the transaction if local is "true". Plans must use the indexes also on
// a table that was empty when they were made. Without sequential scans some plans look so
// expensive that the server would compile them, so that is off too. A session compresses
// large answers by lz4 where the server has it: a megabyte of JSON takes 5 ms of the server
// instead of 23, which all other steps wait for.
func (c *conn) settings(local string) string {
	set := func(name, value string) string { return "set_config('" + name + "', '" + value + "', " + local + ")" }
	sync := "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', " + local + ") END"
	if c.relaxed {
		sync = set("synchronous_commit", "off")
	}
	all := "SELECT " + sync + ", " + set("client_min_messages", "warning") + ", " + set("lock_timeout", cmp.Or(c.lockTimeout, c.s.lockTimeout)) + ", " + set("statement_timeout", "0") + ", " + set("jit", "off") +
		", " + set("enable_seqscan", "off") + ", " + set("enable_hashjoin", "off") + ", " + set("enable_mergejoin", "off") + ", " + set("enable_bitmapscan", "off")
	if local == "false" {
		all += ", " + set("default_transaction_isolation", "read committed") + ", " + set("plan_cache_mode", "force_generic_plan") +
			", " + set("default_transaction_read_only", "off") +
			", (SELECT " + set("default_toast_compression", "lz4") + " FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals))"
	}
	return all
}

// drop closes the connection without telling the server: a statement under way goes on.
func (c *conn) drop() {
	if c.pg == nil {
		return
	}
	_ = c.pg.Conn().Close()
	c.pg = nil
}

// close closes the connection in good order.
func (c *conn) close(ctx context.Context) error {
	if c.pg == nil || c.pg.IsClosed() {
		c.drop()
		return nil
	}
	err := c.pg.Close(ctx)
	c.pg = nil
	return err
}
