package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// A conn is one connection of the store's own. It connects when it is first used, and
// again after it broke. It is used by one goroutine at a time.
type conn struct {
	s           *Store
	pool        *connPool // nil if it is of none
	relaxed     bool      // commits need not be flushed
	lockTimeout string
	pg          *pgconn.PgConn
	prepared    map[string]*pgconn.StatementDescription
	exchanges   int         // on this connection
	warned      atomic.Bool // the server has warned since the last confirm began
	listens     bool        // the server notifies this connection of changes
	notified    atomic.Bool // it has, since the last wait
}

// A query is one statement of an exchange, with its parameters. Each is called for
// every row; the values are valid until it returns.
type query struct {
	*statement
	params [][]byte
	each   func(values [][]byte) error
	count  *int64              // gets the number of rows, if not nil
	flight *groupcommit.Flight // is told when the only query has been executed, if not nil
}

var binaryFormat = []int16{1}

// do sends queries in one round trip and one transaction, and returns when it has
// committed. If the server returns an ERROR nothing was applied. After any other error
// the outcome is unknown.
//
// The time limit is a deadline of the network connection. It ends the exchange without
// a cancel request: a commit that waits for a standby counts as done when it is
// cancelled. A context's own deadline would cost a goroutine of the driver's.
func (c *conn) do(ctx context.Context, queries ...query) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	limit := time.Now().Add(c.s.timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	if err := c.pg.Conn().SetDeadline(limit); err != nil {
		c.drop()
		return err
	}
	ctx = context.Background()
	failpoint.Hit("pg.sending")
	err := c.exchange(ctx, queries)
	failpoint.Hit("pg.answered")
	if !isRefusal(err) {
		c.s.doubt.raise()
	}
	if err == nil && c.s.doubt.open() {
		err = c.confirm(ctx)
	}
	if err != nil {
		c.recover(ctx)
		err = c.s.closedBy(err)
	}
	return err
}

// recover ends the transaction that an error has left open, or drops the connection.
func (c *conn) recover(ctx context.Context) {
	if !c.pg.IsClosed() && c.pg.TxStatus() != 'I' {
		if _, err := c.pg.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
			c.drop()
			return
		}
	}
	if c.pg.IsClosed() {
		c.drop()
	}
}

// confirm resolves the doubts raised so far by a commit of its own.
func (c *conn) confirm(ctx context.Context) error {
	n := c.s.doubt.raised.Load()
	c.warned.Store(false)
	if err := c.exchange(ctx, []query{{statement: &c.s.sql.confirm}}); err != nil {
		return fmt.Errorf("%w, and cannot say by now: %v", errDoubt, err) //nolint:errorlint // the step itself was not refused
	}
	if c.warned.Load() {
		return errDoubt
	}
	c.s.doubt.resolve(n)
	return nil
}

// exchange sends queries and reads their results, in one round trip once they are
// prepared.
func (c *conn) exchange(ctx context.Context, queries []query) error {
	if err := c.prepare(ctx, queries); err != nil {
		return err
	}
	if len(queries) == 1 && !c.s.pgBouncer {
		q := &queries[0]
		if q.flight.Watched() || q.flight.Distant() {
			return c.exchangeInSteps(ctx, queries)
		}
		return q.read(c.pg.ExecStatement(ctx, c.prepared[q.name], q.params, binaryFormat, binaryFormat))
	}
	p := c.pg.StartPipeline(ctx)
	before := 0
	if c.s.pgBouncer {
		before = 2
		p.SendQueryParams("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE", nil, nil, nil, nil)
		p.SendQueryParams(c.settings("true"), nil, nil, nil, nil)
	}
	for i := range queries {
		q := &queries[i]
		if c.s.pgBouncer {
			p.SendQueryParams(q.sql, q.params, q.oids, binaryFormat, binaryFormat)
		} else {
			p.SendQueryStatement(c.prepared[q.name], q.params, binaryFormat, binaryFormat)
		}
	}
	if c.s.pgBouncer {
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

// exchangeInSteps sends the only one of queries, and tells its flight when it has left. If
// the flight is watched, it asks the server for the rows before it commits, and tells the
// flight of these too; they count only when the commit has been confirmed.
func (c *conn) exchangeInSteps(ctx context.Context, queries []query) error {
	q := &queries[0]
	began := time.Now()
	p := c.pg.StartPipeline(ctx)
	p.SendQueryStatement(c.prepared[q.name], q.params, binaryFormat, binaryFormat)
	if q.flight.Watched() {
		p.SendFlushRequest()
	}
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	if c.pool.mayGrow(began) {
		q.flight.Sent(c.s.way.roundTrip())
	}
	var err error
	if q.flight.Watched() {
		err = c.readInSteps(p, q, began)
	} else {
		err = receive(p, queries, 0)
	}
	if closing := p.Close(); err == nil {
		err = closing
	}
	return err
}

// readInSteps reads the result of the query, and then the end of its transaction. The next
// batch needs a connection of its own; if the server has none, it does not begin earlier.
func (c *conn) readInSteps(p *pgconn.Pipeline, q *query, began time.Time) error {
	got, err := p.GetResults()
	if err != nil {
		return err
	}
	rows, ok := got.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("the server answered a statement by %T", got)
	}
	if err := q.read(rows); err != nil {
		return err
	}
	executed := time.Now()
	if c.pool.mayGrow(executed) {
		q.flight.Executed(executed.Sub(began))
	}
	failpoint.Hit("pg.executed")
	got, err = p.GetResults()
	if err != nil {
		return err
	}
	if _, ok := got.(*pgconn.PipelineSync); !ok {
		return fmt.Errorf("the server answered a commit by %T", got)
	}
	q.flight.Committed(time.Since(executed))
	return nil
}

// receive reads the results of a pipeline. The first few are not the queries'.
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
		if err := q.read(rows); err != nil {
			return err
		}
	}
}

// read reads the result of the query.
func (q *query) read(rows *pgconn.ResultReader) (err error) {
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

// prepare prepares the statements that are not prepared yet. Behind PgBouncer no
// statement stays prepared.
func (c *conn) prepare(ctx context.Context, queries []query) error {
	if c.s.pgBouncer {
		return nil
	}
	// A plan that was made when the table was small, or empty and vacuumed, may scan the
	// whole table. It is made again before the table can have grown much.
	if c.exchanges++; c.exchanges >= 16 && c.exchanges&(c.exchanges-1) == 0 {
		if _, err := c.pg.Exec(ctx, "DISCARD PLANS").ReadAll(); err != nil {
			return err
		}
	}
	for i := range queries {
		q := &queries[i]
		if c.prepared[q.name] != nil {
			continue
		}
		described, err := c.pg.Prepare(ctx, q.name, q.sql, q.oids)
		if err != nil {
			return err
		}
		c.prepared[q.name] = described
	}
	return nil
}
