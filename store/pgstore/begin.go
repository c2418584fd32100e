package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
)

var (
	//X _ retrysafe.TxStore[pgx.Tx] = (*Store)(nil)
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
}

const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

// start begins the transaction unless it has begun.
func (t *OwnTx) start(ctx context.Context) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	if t.begun {
		return nil
	}
	t.begun = true
	_, err := t.conn.Exec(ctx, begin)
	return err
}

// joined returns the key's side of the transaction.
func (t *OwnTx) joined() *Tx { return t.s.Tx(t) }

// Reserve implements [retrysafe.Tx].
func (t *OwnTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if t.begun || t.conn == nil {
		return t.joined().Reserve(ctx, ref)
	}
	t.begun = true
	k := idOf(ref)
	var batch pgx.Batch
	batch.Queue(begin)
	free, found := false, false
	batch.Queue(t.s.sql.hold, k.lock()).QueryRow(func(r pgx.Row) error { return r.Scan(&free) })
	var w row
	batch.Queue(t.s.sql.look, k.text()).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			found = true
			if err := w.scan(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	switch err := t.conn.SendBatch(ctx, &batch).Close(); {
	case err != nil:
		return retrysafe.Record{}, errors.Join(fmt.Errorf("reserve key: %w", explain(err)), t.Rollback(context.WithoutCancel(ctx)))
	case !free:
		return retrysafe.Record{}, retrysafe.ErrBusy
	case !found:
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	return w.of(ref)
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
	var got row
	stored := false
	err := t.finish(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var batch pgx.Batch
		// A key that somebody else holds leaves no row, and must not commit: the
		// division fails then.
		batch.Queue(t.s.sql.putOrFail, putArgs(k, &r)...).QueryRow(func(row pgx.Row) error {
			stored = true
			return got.scan(row.Scan)
		})
		batch.Queue("COMMIT")
		return conn.SendBatch(ctx, &batch).Close()
	})
	switch {
	case isCode(err, "23505"):
		return retrysafe.Record{}, retrysafe.ErrExists
	case isCode(err, "22012"):
		return retrysafe.Record{}, retrysafe.ErrBusy
	case err != nil:
		return retrysafe.Record{}, fmt.Errorf("create and commit: %w", explain(err))
	case !stored:
		return retrysafe.Record{}, errors.New("create and commit: the server did not return the record")
	}
	return got.of(r.Ref)
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
	return t.finish(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, "COMMIT")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}

// finish runs last, which ends the transaction, and gives the connection back. If
// ctx ends first the rest happens behind the caller's back, and it is told that
// nobody can say.
func (t *OwnTx) finish(ctx context.Context, last func(context.Context, *pgxpool.Conn) error) error {
	conn := t.conn
	t.conn = nil
	if err := ctx.Err(); err != nil { // nothing was sent, and nothing will be
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
		return err
	}
	if ctx.Done() == nil {
		defer conn.Release()
		return ended(conn, last(ctx, conn))
	}
	done := make(chan error, 1)
	t.s.commits.Go(func() {
		defer conn.Release()
		done <- ended(conn, last(context.WithoutCancel(ctx), conn))
	})
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
	if !t.begun || t.conn.Conn().IsClosed() {
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
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	// The driver's own: a transaction that begins and ends by a savepoint.
	return t.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: "SAVEPOINT retrysafe", CommitQuery: "RELEASE SAVEPOINT retrysafe"})
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
func (b failedBatch) QueryRow() pgx.Row                { return failedRow{b.err} }
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

// LargeObjects implements [pgx.Tx]. It costs a round trip: the driver gives them
// out with a transaction of its own only, here a savepoint.
func (t *OwnTx) LargeObjects() pgx.LargeObjects {
	nested, err := t.Begin(context.Background())
	if err != nil {
		return pgx.LargeObjects{}
	}
	return nested.LargeObjects()
}

// Conn implements [pgx.Tx].
func (t *OwnTx) Conn() *pgx.Conn { return t.conn.Conn() }
