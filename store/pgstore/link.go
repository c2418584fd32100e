package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// A link is one connection of the store's own. It connects when it is first
// used, and again after it broke. It is used by one caller at a time.
type link struct {
	s        *Store
	relaxed  bool // commits need not be flushed
	conn     *pgconn.PgConn
	prepared map[string]bool
	warned   atomic.Bool // the server has warned since the last exchange began
}

// A query is one statement of an exchange. Each is called for every row; the
// values are valid until it returns.
type query struct {
	*statement
	params [][]byte
	each   func(values [][]byte) error
	count  *int64 // gets the number of rows, if not nil
}

var (
	binaryFormat = []int16{1}
	errDoubt     = errors.New("the server warned that the commit may not have reached the standby")
)

// do sends queries in one round trip and one transaction, and returns when it
// has committed. An error of the server's own, a [pgconn.PgError], means that
// nothing was applied; after any other error nobody can say.
//
// Ctx bounds the exchange without cancelling it at the server: a commit that
// waits for a standby would count as done when it is cancelled.
func (l *link) do(ctx context.Context, queries ...query) error {
	if err := l.connect(ctx); err != nil {
		return err
	}
	l.warned.Store(false)
	err := l.exchange(ctx, queries)
	if l.warned.Load() {
		l.s.doubt.Store(true)
	}
	if err == nil && l.s.doubt.Load() {
		err = l.confirm(ctx)
	}
	if err != nil && l.conn.IsClosed() {
		l.drop()
	}
	return err
}

// confirm ends a doubt about earlier commits: the log is sequential, so a commit
// that has reached the standby says the same of all before it.
func (l *link) confirm(ctx context.Context) error {
	l.warned.Store(false)
	err := l.exchange(ctx, []query{{statement: &l.s.sql.confirm}})
	if err == nil && l.warned.Load() {
		err = errDoubt
	}
	if err == nil {
		l.s.doubt.Store(false)
	}
	return err
}

func (l *link) exchange(ctx context.Context, queries []query) error {
	if err := l.prepare(ctx, queries); err != nil {
		return err
	}
	p := l.conn.StartPipeline(ctx)
	before := 0
	if l.s.pooled {
		before = 2
		p.SendQueryParams("BEGIN ISOLATION LEVEL READ COMMITTED", nil, nil, nil, nil)
		p.SendQueryParams(l.settings("true"), nil, nil, nil, nil)
	}
	for i := range queries {
		q := &queries[i]
		if l.s.pooled {
			p.SendQueryParams(q.sql, q.params, q.oids, binaryFormat, binaryFormat)
		} else {
			p.SendQueryPrepared(q.name, q.params, binaryFormat, binaryFormat)
		}
	}
	if l.s.pooled {
		p.SendQueryParams("COMMIT", nil, nil, nil, nil)
	}
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	err := receive(p, queries, before)
	if closing := p.Close(); err == nil {
		err = closing
	}
	return err
}

// receive reads the results, of which the first few are not the queries'.
func receive(p *pgconn.Pipeline, queries []query, before int) error {
	for n := -before; ; n++ {
		got, err := p.GetResults()
		if err != nil {
			return err
		}
		rows, ok := got.(*pgconn.ResultReader)
		if !ok { // the end
			return nil
		}
		var q query
		if n >= 0 && n < len(queries) {
			q = queries[n]
		}
		for rows.NextRow() {
			if q.each != nil && err == nil {
				err = q.each(rows.Values())
			}
		}
		tag, closing := rows.Close()
		if closing != nil {
			return closing
		}
		if err != nil {
			return err
		}
		if q.count != nil {
			*q.count = tag.RowsAffected()
		}
	}
}

// prepare prepares what was not. Behind a pooler nothing stays prepared.
func (l *link) prepare(ctx context.Context, queries []query) error {
	if l.s.pooled {
		return nil
	}
	for i := range queries {
		q := &queries[i]
		if l.prepared[q.name] {
			continue
		}
		if _, err := l.conn.Prepare(ctx, q.name, q.sql, q.oids); err != nil {
			return err
		}
		l.prepared[q.name] = true
	}
	return nil
}

// connect connects unless it is.
func (l *link) connect(ctx context.Context) error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	l.drop()
	config := l.s.config.Copy()
	if l.s.beforeConnect != nil {
		if err := l.s.beforeConnect(ctx, config); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" || n.SeverityUnlocalized == "WARNING" {
			l.warned.Store(true)
		}
	}
	// The driver sends a cancel request, over another connection, when it gives
	// one up. It must not: see do.
	var connected atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("a step is never cancelled")
		}
		return dial(ctx, network, addr)
	}
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	connected.Store(true)
	l.conn, l.prepared = conn, make(map[string]bool)
	if l.s.pooled {
		return nil
	}
	if _, err := conn.Exec(ctx, l.settings("false")).ReadAll(); err != nil {
		l.drop()
		return fmt.Errorf("set up connection: %w", err)
	}
	return nil
}

// settings is the statement that sets what our statements need, for the
// transaction or for the session. Plans must use the index also on a table that
// was empty when they were made; without sequential scans a plan looks so
// expensive that it would be compiled.
func (l *link) settings(local string) string {
	set := func(name, value string) string { return "set_config('" + name + "', '" + value + "', " + local + ")" }
	sync := "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', " + local + ") END"
	if l.relaxed {
		sync = set("synchronous_commit", "off")
	}
	all := "SELECT " + sync + ", " + set("lock_timeout", l.s.lockTimeout) + ", " + set("jit", "off") +
		", " + set("enable_seqscan", "off") + ", " + set("enable_hashjoin", "off") + ", " + set("enable_mergejoin", "off") + ", " + set("enable_bitmapscan", "off")
	if local == "false" {
		all += ", " + set("default_transaction_isolation", "read committed") + ", " + set("plan_cache_mode", "force_generic_plan") +
			", " + set("default_transaction_read_only", "off") + ", " + set("statement_timeout", "0")
	}
	return all
}

// drop gives the connection up. Whatever it was doing goes on at the server.
func (l *link) drop() {
	if l.conn == nil {
		return
	}
	_ = l.conn.Conn().Close()
	l.conn = nil
}

// close ends the connection in good order.
func (l *link) close(ctx context.Context) error {
	if l.conn == nil || l.conn.IsClosed() {
		l.drop()
		return nil
	}
	err := l.conn.Close(ctx)
	l.conn = nil
	return err
}
