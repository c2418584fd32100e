package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

var (
	_ retrysafe.TxStore[pgx.Tx] = (*Store)(nil)
	_ pgx.Tx                    = (*OwnTx)(nil)
)

// BeginTx implements [retrysafe.TxStore]. The connection comes from the pool; the
// transaction begins with its first statement, in the same round trip.
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, pgx.Tx, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("pgstore: begin: %w", explain(err))
	}
	tx := &OwnTx{s: s, conn: conn}
	return tx, tx, nil
}

// OwnTx is a transaction that the store has begun for [retrysafe.DoTx]: a [pgx.Tx]
// for the business writes and a [retrysafe.Tx] for the key, which it reserves
// together with BEGIN and stores together with COMMIT. It is not safe for
// concurrent use.
type OwnTx struct {
	s     *Store
	conn  *pgxpool.Conn // nil once it has ended
	begun bool
	held  *id // the key that it has reserved, which was free
	// replicated: commits wait for a standby.
	replicated bool
	inner      pgx.Tx // the driver's view of it, for savepoints
}

// start begins the transaction unless it has begun.
func (t *OwnTx) start(ctx context.Context) error {
	if t.conn == nil || t.gone() {
		return pgx.ErrTxClosed
	}
	if t.begun {
		return nil
	}
	t.begun = true
	_, err := t.conn.Exec(ctx, t.s.sql.begin.sql)
	return err
}

// gone reports whether somebody has ended the transaction by a statement of his
// own. What follows would be committed by itself: the answer without its effects.
func (t *OwnTx) gone() bool { return t.begun && t.conn.Conn().PgConn().TxStatus() == 'I' }

// joined returns the key's side of the transaction.
func (t *OwnTx) joined() *Tx { return t.s.Tx(t) }

// Reserve implements [retrysafe.Tx].
func (t *OwnTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if t.begun || t.conn == nil {
		return t.joined().Reserve(ctx, ref)
	}
	t.begun = true
	k := idOf(ref)
	sql := &t.s.sql
	free, found := false, false
	var w row
	err := t.send(ctx, t.conn, query{statement: &sql.begin},
		query{statement: &sql.holdOwn, params: [][]byte{int8Param(k.lock())}, each: func(v [][]byte) error {
			free, t.replicated = boolAt(v[0]), boolAt(v[1])
			return nil
		}},
		query{statement: &sql.lookOne, params: [][]byte{k[:]}, each: func(v [][]byte) error {
			found, w = true, scanRow(v)
			return nil
		}})
	switch {
	case err != nil:
		return retrysafe.Record{}, errors.Join(fmt.Errorf("reserve key: %w", explain(t.s.closedBy(err))), t.Rollback(context.WithoutCancel(ctx)))
	case !free:
		return retrysafe.Record{}, retrysafe.ErrBusy
	case !found:
		t.held = &k
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	if err := t.s.certain(ctx); err != nil {
		return retrysafe.Record{}, err
	}
	return w.of(ref)
}

// heard reports whether the connection's warnings reach the store.
func (t *OwnTx) heard() bool {
	_, ok := t.conn.Conn().PgConn().CustomData()[hushed]
	return ok
}

// send sends queries in one round trip.
func (t *OwnTx) send(ctx context.Context, conn *pgxpool.Conn, queries ...query) error {
	described := make([]*pgconn.StatementDescription, len(queries))
	if !t.s.pooled {
		for i := range queries {
			var err error
			if described[i], err = conn.Conn().Prepare(ctx, queries[i].name, queries[i].sql); err != nil { // once for a connection
				return err
			}
		}
	}
	p := conn.Conn().PgConn().StartPipeline(ctx)
	for i := range queries {
		q := &queries[i]
		if t.s.pooled {
			p.SendQueryParams(q.sql, q.params, q.oids, binaryFormat, binaryFormat)
		} else {
			p.SendQueryStatement(described[i], q.params, binaryFormat, binaryFormat)
		}
	}
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	failpoint.Hit("pg.tx.sent")
	err := receive(p, queries, 0)
	if closing := p.Close(); err == nil {
		err = closing
	}
	return err
}

// Create implements [retrysafe.Tx].
func (t *OwnTx) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return t.joined().Create(ctx, r)
}

// Swap implements [retrysafe.Swapper].
func (t *OwnTx) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return t.joined().Swap(ctx, r)
}

// CreateAndCommit does both in one round trip. [retrysafe.ErrExists] and
// [retrysafe.ErrBusy]: not committed. After another error nobody can say.
func (t *OwnTx) CreateAndCommit(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	if err := t.start(ctx); err != nil {
		return retrysafe.Record{}, err
	}
	k := idOf(r.Ref)
	var got retrysafe.Record
	stored := false
	// A key that somebody else holds leaves no row, and must not commit: a
	// division fails then.
	put := query{statement: &t.s.sql.putOne, params: putParams(k, &r), each: func(v [][]byte) error {
		got, stored = inserted(&r, v[0], v[1]), true
		return nil
	}}
	if t.held != nil && *t.held == k {
		put.statement, put.params = &t.s.sql.putHeld, slices.Delete(put.params, lockParam, lockParam+1)
	}
	err := t.finish(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return t.send(ctx, conn, put, query{statement: &t.s.sql.commit})
	})
	switch {
	case isCode(err, "23505") && !stored: // once it is stored, the commit has failed for a reason of the caller's
		return retrysafe.Record{}, retrysafe.ErrExists
	case isCode(err, "22012") && !stored:
		return retrysafe.Record{}, retrysafe.ErrBusy
	case err != nil:
		return retrysafe.Record{}, fmt.Errorf("create and commit: %w", explain(err))
	case !stored:
		return retrysafe.Record{}, errors.New("create and commit: the server did not return the record")
	}
	return got, nil
}

// Commit commits. Ctx ends the wait for it, never the commit itself: one that was
// cancelled while it waits for a standby would look like one that was confirmed.
func (t *OwnTx) Commit(ctx context.Context) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	if !t.begun {
		t.release()
		return nil
	}
	if t.gone() {
		t.release()
		return pgx.ErrTxClosed
	}
	return t.finish(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, "COMMIT")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}

// finish runs last, which ends the transaction, and returns when it is certain to
// stay so.
func (t *OwnTx) finish(ctx context.Context, last func(context.Context, *pgxpool.Conn) error) error {
	heard := t.heard()
	failpoint.Hit("pg.tx.ending")
	if err := t.end(ctx, last); err != nil {
		return err
	}
	failpoint.Hit("pg.tx.ended")
	if t.replicated && !heard { // a warning would have reached nobody
		t.s.doubts.raise()
	}
	return t.s.certain(ctx)
}

// end runs last and gives the connection back. If ctx ends first the rest happens
// behind the caller's back, and it is told that nobody can say.
func (t *OwnTx) end(ctx context.Context, last func(context.Context, *pgxpool.Conn) error) error {
	conn := t.conn
	t.conn = nil
	if err := ctx.Err(); err != nil { // nothing was sent, and nothing will be
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
		return err
	}
	if ctx.Done() == nil {
		defer conn.Release()
		return t.s.commit(conn, func() error { return last(ctx, conn) })
	}
	if !t.s.life.Enter() {
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
		return ErrClosed
	}
	done := make(chan error, 1)
	t.s.commits.Go(func() {
		defer conn.Release()
		done <- t.s.commit(conn, func() error { return last(context.WithoutCancel(ctx), conn) })
	})
	t.s.life.Leave()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the commit goes on unseen: %w", ctx.Err())
	}
}

// ended makes sure that no transaction is left open on a connection that goes
// back to the pool.
func ended(conn *pgxpool.Conn, err error) error {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' {
		_, rollback := conn.Exec(context.Background(), "ROLLBACK")
		return errors.Join(err, rollback)
	}
	return err
}

// Rollback rolls back. One that has ended is no error.
func (t *OwnTx) Rollback(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	defer t.release()
	if !t.begun || t.gone() || t.conn.Conn().IsClosed() {
		return nil
	}
	if _, err := t.conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = t.conn.Conn().Close(context.WithoutCancel(ctx)) // then the server rolls back
	}
	return nil
}

func (t *OwnTx) release() {
	t.conn.Release()
	t.conn = nil
}

// The rest is [pgx.Tx], for the business writes.

// Begin starts a nested transaction, by a savepoint.
func (t *OwnTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.driver(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Begin(ctx)
}

// driver returns the transaction as the driver would have begun it. It is for what
// only the driver can do inside, and never ended.
func (t *OwnTx) driver(ctx context.Context) (pgx.Tx, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	if t.inner == nil {
		inner, err := t.conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: "SELECT"}) // it has begun
		if err != nil {
			return nil, err
		}
		t.inner = inner
	}
	return t.inner, nil
}

// Exec implements [pgx.Tx].
func (t *OwnTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

// Query implements [pgx.Tx].
func (t *OwnTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Conn().Query(ctx, sql, args...)
}

// QueryRow implements [pgx.Tx].
func (t *OwnTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return failedRow{err}
	}
	return t.conn.Conn().QueryRow(ctx, sql, args...)
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// SendBatch implements [pgx.Tx].
func (t *OwnTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.start(ctx); err != nil {
		return failedBatch{err}
	}
	return t.conn.Conn().SendBatch(ctx, b)
}

type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRow(b) }
func (b failedBatch) Close() error                     { return b.err }

// CopyFrom implements [pgx.Tx].
func (t *OwnTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.start(ctx); err != nil {
		return 0, err
	}
	return t.conn.Conn().CopyFrom(ctx, table, columns, src)
}

// Prepare implements [pgx.Tx].
func (t *OwnTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Conn().Prepare(ctx, name, sql)
}

// LargeObjects implements [pgx.Tx]. It costs a round trip the first time.
func (t *OwnTx) LargeObjects() pgx.LargeObjects {
	inner, err := t.driver(context.Background())
	if err != nil {
		return pgx.LargeObjects{}
	}
	return inner.LargeObjects()
}

// Conn implements [pgx.Tx].
func (t *OwnTx) Conn() *pgx.Conn { return t.conn.Conn() }
