package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

var (
	_ retrysafe.TxStore[pgx.Tx] = (*Store)(nil)
	_ retrysafe.CreateCommitter = (*ownTx)(nil)
	_ retrysafe.Taker           = (*ownTx)(nil)
)

// BeginTx implements [retrysafe.TxStore]. The connection is one of the pool's. BEGIN is
// sent together with the first statement, in one round trip.
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, pgx.Tx, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	return tx, borrowed{tx}, nil
}

// begin begins a transaction of the store's own.
func (s *Store) begin(ctx context.Context) (*ownTx, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgstore: begin: %w", explain(err))
	}
	return &ownTx{s: s, conn: conn}, nil
}

// borrowed is an [ownTx] in the hands of the operation that runs in it. Its Commit is
// refused: DoTx commits, with the answer. Its Rollback is final.
type borrowed struct{ *ownTx }

// errBorrowed: the operation tried to commit.
var errBorrowed = errors.New("pgstore: this transaction is committed by DoTx or PhaseTx, together with the answer; return nil instead of committing it, or an error to roll it back")

// Commit implements [pgx.Tx]. It changes nothing and returns an error.
func (t borrowed) Commit(context.Context) error { return errBorrowed }

// ownTx is a transaction that the store has begun for [retrysafe.DoTx]: a [pgx.Tx] for the
// business writes and a [retrysafe.Tx] for the key. Take and Reserve send BEGIN along, and
// CreateAndCommit sends COMMIT along, so the key costs two round trips. It is not safe
// for concurrent use.
type ownTx struct {
	s     *Store
	conn  *pgxpool.Conn // nil once it has ended
	sent  bool          // a commit was sent, or would have been
	begun bool
	left  bool  // the caller has ended it by a statement that has begun another one
	since int64 // when it began, by which the server tells it from such another one
	held  *id   // the key that it has locked and found free
	// asked says that the server has told whether commits wait for a standby, and
	// replicated that they do.
	asked, replicated bool
	messages          bool   // it has some
	inner             pgx.Tx // the same transaction as the driver's own type
}

// start begins the transaction, unless it has begun.
func (t *ownTx) start(ctx context.Context) error {
	if t.conn == nil {
		return pgx.ErrTxClosed // it was rolled back: nothing else ends it without a statement
	}
	if t.endedByCaller() {
		return errEndedByCaller
	}
	if t.begun {
		return nil
	}
	t.begun = true
	return t.send(ctx, t.conn, query{statement: &t.s.sql.begin}, query{statement: &t.s.sql.since, each: t.began})
}

// began notes when the transaction has begun.
func (t *ownTx) began(v [][]byte) error {
	t.since = int8At(v[0])
	return nil
}

// check is a query that fails in another transaction than this one, by a division by zero,
// and with it what was sent along. It reports its success.
func (t *ownTx) check(same *bool) query {
	return query{statement: &t.s.sql.sameSince, params: [][]byte{int8Param(t.since)}, each: func([][]byte) error {
		*same = true
		return nil
	}}
}

// errEndedByCaller says that the caller has ended the transaction by a statement, perhaps with
// a commit.
var errEndedByCaller = fmt.Errorf("%w: %w", retrysafe.ErrTxDone, pgx.ErrTxClosed)

const codeDivisionByZero = "22012"

// endedByCaller reports whether the caller has ended the transaction by a statement.
// What follows would be committed by itself: the answer without its effects.
func (t *ownTx) endedByCaller() bool {
	return t.begun && (t.left || t.conn.Conn().PgConn().TxStatus() == 'I')
}

// joined returns the transaction as one that the store has joined.
func (t *ownTx) joined() *Tx { return t.s.Tx(t) }

// Reserve implements [retrysafe.Tx].
func (t *ownTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if t.begun || t.conn == nil {
		return t.joined().Reserve(ctx, ref)
	}
	t.begun = true
	k := idOf(ref)
	sql := &t.s.sql
	var got taking
	err := t.send(ctx, t.conn, query{statement: &sql.begin},
		query{statement: &sql.lockOwn, params: [][]byte{int8Param(k.lock())}, each: func(v [][]byte) error {
			got.free, t.asked, t.replicated = boolAt(v[0]), true, boolAt(v[1])
			return t.began(v[4:])
		}},
		query{statement: &sql.readOne, params: [][]byte{k[:]}, each: func(v [][]byte) error {
			got.found, got.row = true, scanRow(v)
			return nil
		}})
	return t.taken(ctx, ref, k, err, &got)
}

// Take implements [retrysafe.Taker]: one statement locks the key and reads it. Its snapshot
// is older than the lock by the time between two of its steps. A record that another
// transaction has committed in that time is missed, and is met by the primary key when
// the answer is inserted, or by the fence of a swap.
func (t *ownTx) Take(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if t.begun || t.conn == nil {
		return t.joined().Reserve(ctx, ref)
	}
	t.begun = true
	k := idOf(ref)
	var got taking
	err := t.take(ctx, k, &got)
	if err == nil && !got.readCommitted {
		// The session's default is another isolation level: the transaction begins again and
		// names it, as those after it do at once.
		t.s.namesIsolation.Store(true)
		if _, err = t.conn.Exec(ctx, "ROLLBACK"); err == nil {
			err = t.take(ctx, k, &got)
		}
	}
	if err == nil && got.free && !got.durable {
		err = t.send(ctx, t.conn, query{statement: &t.s.sql.settings})
	}
	return t.taken(ctx, ref, k, err, &got)
}

// taking is what the server has said about a key and about the transaction that takes it.
type taking struct {
	free          bool // the transaction has the key
	found         bool // it has a record
	row           row
	readCommitted bool
	durable       bool // the commit waits as it must, and its warnings come through
}

// take begins the transaction, takes the key and reads it. To name the isolation level
// makes a setting for the transaction, which costs more than to ask for it.
func (t *ownTx) take(ctx context.Context, k id, got *taking) error {
	begin := &t.s.sql.beginDefault
	if t.s.namesIsolation.Load() {
		begin = &t.s.sql.begin
	}
	return t.send(ctx, t.conn, query{statement: begin},
		query{statement: &t.s.sql.take, params: [][]byte{int8Param(k.lock()), k[:]}, each: func(v [][]byte) error {
			got.free, got.found = boolAt(v[0]), v[6] != nil
			t.asked, t.replicated = true, len(v[1]) > 0
			got.durable = commitsDurably(v[2]) && string(v[3]) != "error"
			got.readCommitted = string(v[4]) == "read committed"
			if got.found {
				got.row = scanRow(v[6:])
			}
			return t.began(v[5:])
		}})
}

// commitsDurably reports whether a commit waits for the disk, and for the standby if there
// is one, under this value of synchronous_commit.
func commitsDurably(setting []byte) bool {
	switch string(setting) {
	case "on", "remote_apply":
		return true
	default:
		return false
	}
}

// taken is the end of Take and Reserve; err is that of the exchange.
func (t *ownTx) taken(ctx context.Context, ref retrysafe.Ref, k id, err error, got *taking) (retrysafe.Record, error) {
	switch {
	case err != nil:
		return retrysafe.Record{}, errors.Join(fmt.Errorf("reserve key: %w", explain(t.s.closedBy(err))), t.Rollback(context.WithoutCancel(ctx)))
	case !got.free:
		return retrysafe.Record{}, retrysafe.ErrBusy
	case !got.found:
		t.held = &k
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	if err := t.s.resolveDoubt(ctx); err != nil {
		return retrysafe.Record{}, err
	}
	return got.row.of(ref)
}

// getsWarnings reports whether the connection's warnings raise a doubt.
func (t *ownTx) getsWarnings() bool {
	_, ok := t.conn.Conn().PgConn().CustomData()[cancelBlocked]
	return ok
}

// send sends queries in one round trip.
func (t *ownTx) send(ctx context.Context, conn *pgxpool.Conn, queries ...query) error {
	described := make([]*pgconn.StatementDescription, len(queries))
	if !t.s.pgBouncer {
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
		if t.s.pgBouncer {
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
func (t *ownTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.joined().Create(ctx, w)
}

// Swap implements [retrysafe.Swapper].
func (t *ownTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.joined().Swap(ctx, w)
}

// CreateAndCommit implements [retrysafe.CreateCommitter]: one round trip. If the error is
// [retrysafe.ErrExists] or [retrysafe.ErrBusy] the transaction was not committed. After
// any other error the outcome is unknown.
func (t *ownTx) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if err := t.start(ctx); err != nil {
		return retrysafe.Record{}, fmt.Errorf("create and commit: %w", err)
	}
	k := idOf(w.Ref)
	var got retrysafe.Record
	stored := false
	// If another transaction holds the key the statement fails, so that the COMMIT behind it
	// commits nothing.
	var params arrays
	params.reserve([]reservation{{k, &w}}, []int{0})
	put := query{statement: &t.s.sql.putOne, params: params.scalars(), each: func(v [][]byte) error {
		got, stored = inserted(&w, v[0], v[1]), true
		return nil
	}}
	same, commit := false, query{statement: &t.s.sql.commit}
	var queries []query
	if t.held != nil && *t.held == k {
		put.statement = &t.s.sql.putHeld // it checks by itself
		if w.State.Forgettable() {
			put.statement = &t.s.sql.putFinal
		}
		put.params = append(slices.Delete(put.params, lockParam, lockParam+1), int8Param(t.since))
		queries = []query{put, commit}
	} else {
		queries = []query{t.check(&same), put, commit}
	}
	err := t.finish(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return t.send(ctx, conn, queries...) })
	switch {
	case isCode(err, codeDivisionByZero) && !stored && !same:
		return retrysafe.Record{}, fmt.Errorf("create and commit: %w", errEndedByCaller)
	case isCode(err, "23505") && !stored: // once it is stored, a constraint of the caller's has failed
		return retrysafe.Record{}, retrysafe.ErrExists
	case isCode(err, codeDivisionByZero) && !stored:
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
func (t *ownTx) Commit(ctx context.Context) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	if !t.begun {
		t.release()
		return nil
	}
	if t.endedByCaller() {
		t.release()
		return pgx.ErrTxClosed
	}
	same := false
	err := t.finish(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if hasFailed(conn) {
			_, err := conn.Exec(ctx, "ROLLBACK")
			return cmp.Or(err, pgx.ErrTxCommitRollback)
		}
		return t.send(ctx, conn, t.check(&same), query{statement: &t.s.sql.commit})
	})
	if isCode(err, codeDivisionByZero) && !same {
		return pgx.ErrTxClosed
	}
	return err
}

// hasFailed reports whether a statement of the transaction has failed, so that the server
// takes nothing any more but its end.
func hasFailed(conn *pgxpool.Conn) bool { return conn.Conn().PgConn().TxStatus() == 'E' }

// finish runs last, which commits, and returns when the commit has reached the standby,
// if there is one.
func (t *ownTx) finish(ctx context.Context, last func(context.Context, *pgxpool.Conn) error) error {
	warned := t.getsWarnings()
	failpoint.Hit("pg.tx.ending")
	err := t.end(ctx, last)
	if t.messages {
		t.s.outbox.listeners.notify() // also after an error: it may have committed
	}
	if err != nil {
		return err
	}
	failpoint.Hit("pg.tx.ended")
	if t.replicated && !warned { // a warning would have been lost
		t.s.doubt.raise()
	}
	return t.s.resolveDoubt(ctx)
}

// end runs last and releases the connection. If ctx ends first, last goes on in another
// goroutine, and the caller gets an error: the outcome is unknown.
func (t *ownTx) end(ctx context.Context, last func(context.Context, *pgxpool.Conn) error) error {
	conn, mayGiveUp := t.conn, t.mayGiveUp()
	t.conn, t.sent = nil, true
	if err := ctx.Err(); err != nil { // nothing was sent, and nothing will be
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
		return err
	}
	_, deadlineOnly := retrysafe.DeadlineOnly(ctx)
	if !deadlineOnly && ctx.Done() == nil {
		defer conn.Release()
		return t.s.commit(conn, func() error { return last(ctx, conn) })
	}
	if !t.s.life.Enter() {
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
		return ErrClosed
	}
	if deadlineOnly && mayGiveUp {
		defer t.s.life.Leave()
		defer conn.Release()
		return t.s.until(ctx, conn, func() error {
			return t.s.commit(conn, func() error { return last(context.Background(), conn) })
		})
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

// mayGiveUp reports whether the connection may be given up while it commits. The commit is
// then sent on the caller's goroutine, and the deadline of the network connection ends
// the wait for it. The driver sends a cancel request when it gives up a connection: on a
// pool that the store has made it cannot, and otherwise that must do no harm, which it
// does where a commit waits for a standby.
func (t *ownTx) mayGiveUp() bool { return t.getsWarnings() || t.asked && !t.replicated }

// until runs last with ctx's deadline, and no longer than a batch may take.
func (s *Store) until(ctx context.Context, conn *pgxpool.Conn, last func() error) error {
	limit := time.Now().Add(s.timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	socket := conn.Conn().PgConn().Conn()
	if err := socket.SetDeadline(limit); err != nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // it is closed; nothing was sent
		return err
	}
	err := last()
	if reset := socket.SetDeadline(time.Time{}); reset != nil && err == nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // it has committed
	}
	return err
}

// endTx makes sure that no transaction is left open on a connection that goes back to
// the pool.
func endTx(conn *pgxpool.Conn, err error) error {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' {
		_, rollback := conn.Exec(context.Background(), "ROLLBACK")
		return errors.Join(err, rollback)
	}
	return err
}

// Rollback rolls back. After a commit, or if the caller has ended the transaction by a
// statement, it returns [retrysafe.ErrTxDone].
func (t *ownTx) Rollback(ctx context.Context) error {
	switch {
	case t.sent:
		return retrysafe.ErrTxDone
	case t.conn == nil:
		return nil
	}
	defer t.release()
	switch {
	case !t.begun || t.conn.Conn().IsClosed():
		return nil
	case t.endedByCaller():
		return retrysafe.ErrTxDone
	}
	same, ended, err := false, false, error(nil)
	if !hasFailed(t.conn) {
		err = t.send(ctx, t.conn, t.check(&same), query{statement: &t.s.sql.rollback})
		ended = isCode(err, codeDivisionByZero) && !same
	}
	if hasFailed(t.conn) { // before, or by the check
		_, err = t.conn.Exec(ctx, "ROLLBACK")
	}
	if err != nil {
		_ = t.conn.Conn().Close(context.WithoutCancel(ctx)) // then the server rolls back
	}
	if ended { // by a statement of the caller's, which may have been a commit
		return retrysafe.ErrTxDone
	}
	return nil
}

func (t *ownTx) release() {
	t.conn.Release()
	t.conn = nil
}
