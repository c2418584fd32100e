package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// links are the connections of the store's own. There are as many as trips were
// ever under way at the same time, one of each lane. The one that was used last
// goes first: a single caller's steps have a connection, and a server process,
// whose memory is warm.
type links struct {
	s       *Store
	relaxed bool   // commits need not be flushed
	wait    string // how long a lock is waited for, if not as the store says
	mu      sync.Mutex
	idle    []*link
}

func (a *links) do(ctx context.Context, queries ...query) error {
	l := a.take()
	defer a.give(l)
	return l.do(ctx, queries...)
}

func (a *links) take() *link {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.idle) - 1
	if n < 0 {
		return &link{s: a.s, relaxed: a.relaxed, wait: a.wait}
	}
	l := a.idle[n]
	a.idle = a.idle[:n]
	return l
}

func (a *links) give(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = append(a.idle, l)
}

// close ends those that are idle: all, when no trip is under way.
func (a *links) close(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, l := range a.idle {
		errs = append(errs, l.close(ctx))
	}
	a.idle = nil
	return errors.Join(errs...)
}

// A link is one connection. It connects when it is first used, and again after it
// broke. It is used by one caller at a time.
type link struct {
	s        *Store
	relaxed  bool // commits need not be flushed
	wait     string
	conn     *pgconn.PgConn
	prepared map[string]*pgconn.StatementDescription
	trips    int         // of this connection
	warned   atomic.Bool // the server has warned since the last confirm began
}

// A query is one statement of an exchange. Each is called for every row; the
// values are valid until it returns.
type query struct {
	*statement
	params [][]byte
	each   func(values [][]byte) error
	count  *int64 // gets the number of rows, if not nil
}

var binaryFormat = []int16{1}

// do sends queries in one round trip and one transaction, and returns when it
// has committed. After an ERROR of the server's nothing was applied; after any
// other error nobody can say.
//
// The store's time limit ends the exchange without cancelling it at the server: a
// commit that waits for a standby would count as done when it is cancelled. It is
// the connection's own: the driver watches a context with a goroutine.
func (l *link) do(ctx context.Context, queries ...query) error {
	if err := l.connect(ctx); err != nil {
		return err
	}
	limit := time.Now().Add(l.s.timeout)
	if mine, ok := ctx.Deadline(); ok && mine.Before(limit) {
		limit = mine
	}
	if err := l.conn.Conn().SetDeadline(limit); err != nil {
		l.drop()
		return err
	}
	ctx = context.Background()
	failpoint.Hit("pg.sending")
	err := l.exchange(ctx, queries)
	failpoint.Hit("pg.answered")
	if !refuses(err) {
		l.s.doubts.raise()
	}
	if err == nil && l.s.doubts.open() {
		err = l.confirm(ctx)
	}
	if err != nil {
		l.recover(ctx)
		err = l.s.closedBy(err)
	}
	return err
}

// recover leaves the connection without a transaction, or gives it up.
func (l *link) recover(ctx context.Context) {
	if !l.conn.IsClosed() && l.conn.TxStatus() != 'I' {
		if _, err := l.conn.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
			l.drop()
			return
		}
	}
	if l.conn.IsClosed() {
		l.drop()
	}
}

// confirm ends the doubts that there are by a commit of its own.
func (l *link) confirm(ctx context.Context) error {
	n := l.s.doubts.raised.Load()
	l.warned.Store(false)
	if err := l.exchange(ctx, []query{{statement: &l.s.sql.confirm}}); err != nil {
		return fmt.Errorf("%w, and cannot say by now: %v", errDoubt, err) //nolint:errorlint // the step itself was not refused
	}
	if l.warned.Load() {
		return errDoubt
	}
	l.s.doubts.settle(n)
	return nil
}

func (l *link) exchange(ctx context.Context, queries []query) error {
	if err := l.prepare(ctx, queries); err != nil {
		return err
	}
	if len(queries) == 1 && !l.s.pooled {
		q := &queries[0]
		return q.take(l.conn.ExecStatement(ctx, l.prepared[q.name], q.params, binaryFormat, binaryFormat))
	}
	p := l.conn.StartPipeline(ctx)
	before := 0
	if l.s.pooled {
		before = 2
		p.SendQueryParams("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE", nil, nil, nil, nil)
		p.SendQueryParams(l.settings("true"), nil, nil, nil, nil)
	}
	for i := range queries {
		q := &queries[i]
		if l.s.pooled {
			p.SendQueryParams(q.sql, q.params, q.oids, binaryFormat, binaryFormat)
		} else {
			p.SendQueryStatement(l.prepared[q.name], q.params, binaryFormat, binaryFormat)
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
		if err := q.take(rows); err != nil {
			return err
		}
	}
}

// take reads the result of the query.
func (q *query) take(rows *pgconn.ResultReader) (err error) {
	for rows.NextRow() {
		if q.each != nil && err == nil {
			err = q.each(rows.Values())
		}
	}
	tag, closing := rows.Close()
	if closing != nil {
		return closing
	}
	if q.count != nil {
		*q.count = tag.RowsAffected()
	}
	return err
}

// prepare prepares what was not. Behind a pooler nothing stays prepared.
func (l *link) prepare(ctx context.Context, queries []query) error {
	if l.s.pooled {
		return nil
	}
	// A plan that was made when the table was small, or empty and vacuumed, may read
	// all of it. It is made again before the table can have grown much.
	if l.trips++; l.trips >= 16 && l.trips&(l.trips-1) == 0 {
		if _, err := l.conn.Exec(ctx, "DISCARD PLANS").ReadAll(); err != nil {
			return err
		}
	}
	for i := range queries {
		q := &queries[i]
		if l.prepared[q.name] != nil {
			continue
		}
		described, err := l.conn.Prepare(ctx, q.name, q.sql, q.oids)
		if err != nil {
			return err
		}
		l.prepared[q.name] = described
	}
	return nil
}

// connect connects unless it is.
func (l *link) connect(ctx context.Context) error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	l.drop()
	ctx, cancel := context.WithTimeout(ctx, l.s.timeout)
	defer cancel()
	config := l.s.config.Copy()
	if l.s.beforeConnect != nil {
		if err := l.s.beforeConnect(ctx, config); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if warns(n) {
			l.warned.Store(true)
			l.s.doubts.raise()
		}
	}
	// The driver sends a cancel request, over another connection, when it gives
	// one up. It must not: see do.
	var connected atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancels
		}
		return dial(ctx, network, addr)
	}
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	connected.Store(true)
	l.conn, l.prepared, l.trips = conn, make(map[string]*pgconn.StatementDescription), 0
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
	all := "SELECT " + sync + ", " + set("client_min_messages", "warning") + ", " + set("lock_timeout", cmp.Or(l.wait, l.s.lockTimeout)) + ", " + set("statement_timeout", "0") + ", " + set("jit", "off") +
		", " + set("enable_seqscan", "off") + ", " + set("enable_hashjoin", "off") + ", " + set("enable_mergejoin", "off") + ", " + set("enable_bitmapscan", "off")
	if local == "false" {
		all += ", " + set("default_transaction_isolation", "read committed") + ", " + set("plan_cache_mode", "force_generic_plan") +
			", " + set("default_transaction_read_only", "off")
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
