package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

var _ retrysafe.Tx = (*Tx)(nil)

// Tx is a transaction of the caller's that the store has joined. It is not safe for
// concurrent use. A step that is refused rolls the transaction back, so that a caller
// that ignores the error cannot commit. Join the outermost transaction: in a nested one
// only the savepoint would be rolled back.
type Tx struct {
	s        *Store
	db       joined
	messages bool // it has some
}

// joined is a transaction of pgx or of database/sql.
type joined interface {
	query(ctx context.Context, sql string, args []any, each func(scan func(...any) error) error) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

// Tx joins a transaction on the store's own database.
func (s *Store) Tx(tx pgx.Tx) *Tx { return &Tx{s: s, db: native{tx}} }

// SQLTx joins a transaction of database/sql on the store's own database, with any driver
// for PostgreSQL.
func (s *Store) SQLTx(tx *sql.Tx) *Tx { return &Tx{s: s, db: standard{tx}} }

// SQL returns the store with transactions of db, for programs that use database/sql, or
// a library on top of it such as gorm, ent or bun. Db must be connections to the store's
// own database, by any driver for PostgreSQL. The store's other steps go on using its own
// pool. A transaction of [retrysafe.DoTx] costs two more round trips than with
// [Store.BeginTx]: database/sql sends one statement at a time.
func (s *Store) SQL(db *sql.DB) retrysafe.TxStore[*sql.Tx] { return &sqlStore{s, db} }

// sqlStore is a [Store] whose transactions are those of a [sql.DB].
type sqlStore struct {
	*Store
	db *sql.DB
}

// BeginTx implements [retrysafe.TxStore]. When ctx ends before the transaction, the
// transaction is rolled back.
func (s *sqlStore) BeginTx(ctx context.Context) (retrysafe.Tx, *sql.Tx, error) {
	if s.db == nil {
		return nil, nil, errors.New("pgstore: begin: SQL was given no database")
	}
	tx, err := beginSQL(ctx, s.db)
	if err != nil {
		return nil, nil, fmt.Errorf("pgstore: begin: %w", err)
	}
	return &Tx{s: s.Store, db: standard{tx}}, tx.Tx.Tx, nil
}

type native struct{ tx pgx.Tx }

func (n native) query(ctx context.Context, sql string, args []any, each func(func(...any) error) error) error {
	// If the caller has ended it by a statement, each step would commit by itself.
	switch n.tx.(type) {
	case *ownTx, borrowed: // they find out by themselves, and may not have begun yet
	default:
		if n.tx.Conn().PgConn().TxStatus() == 'I' {
			return pgx.ErrTxClosed
		}
	}
	rows, err := n.tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// commit does not end with ctx: the driver would send a cancel request.
func (n native) commit(ctx context.Context) error { return n.tx.Commit(context.WithoutCancel(ctx)) }

func (n native) rollback(ctx context.Context) error { return explain(n.tx.Rollback(ctx)) }

// standard is a transaction of database/sql: a [sql.Tx] of the caller's, or an [ownSQLTx]
// that the store has begun.
type standard struct{ tx standardTx }

type standardTx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

func (n standard) query(ctx context.Context, sql string, args []any, each func(func(...any) error) error) error {
	rows, err := n.tx.QueryContext(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (n standard) commit(context.Context) error { return n.tx.Commit() }

func (n standard) rollback(context.Context) error { return explain(n.tx.Rollback()) }

// Reserve implements [retrysafe.Tx]. It takes the advisory lock of the key for the length
// of the transaction, without waiting. It reads the row by a later statement, which sees
// what the last holder of the lock has committed.
func (t *Tx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	k := idOf(ref)
	free := false
	err := t.db.query(ctx, t.s.sql.tx.lock.sql, []any{k.lock()}, func(scan func(...any) error) error { return scan(&free) })
	if err != nil {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("reserve key: %w", explain(err)))
	}
	if !free {
		return retrysafe.Record{}, retrysafe.ErrBusy
	}
	w, err := t.read(ctx, k)
	if err == nil {
		err = t.s.resolveDoubt(ctx)
	}
	if err != nil {
		return retrysafe.Record{}, err
	}
	return w.of(ref)
}

func (t *Tx) read(ctx context.Context, k id) (w row, err error) {
	found := false
	if err := t.db.query(ctx, t.s.sql.tx.read.sql, []any{k.text()}, func(scan func(...any) error) error {
		found = true
		return w.scan(scan)
	}); err != nil {
		return w, t.refuse(fmt.Errorf("look up key: %w", explain(err)))
	}
	if !found {
		return w, retrysafe.ErrNotFound
	}
	return w, nil
}

// scan reads a row that was selected with {plain columns}.
func (w *row) scan(scan func(...any) error) error {
	var k, owner []byte
	if err := scan(&k, &owner, &w.revision, &w.deadline, &w.created, &w.state, &w.head, &w.tail, &w.checkpoint, &w.now); err != nil {
		return err
	}
	copy(w.id[:], k)
	copy(w.owner[:], owner)
	return nil
}

// Create implements [retrysafe.Tx]. If the key exists, or if another transaction holds
// it, Create is refused.
func (t *Tx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	k := idOf(w.Ref)
	var got row
	stored := false
	err := t.db.query(ctx, t.s.sql.tx.insert.sql, insertArgs(k, &w), func(scan func(...any) error) error {
		stored = true
		return got.scan(scan)
	})
	if err == nil && stored {
		return t.written(&got, w.Ref)
	}
	if err != nil && !isCode(err, "23505") {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("create key: %w", explain(err)))
	}
	if err != nil { // the transaction has failed already
		return retrysafe.Record{}, t.refuse(retrysafe.ErrExists)
	}
	return retrysafe.Record{}, t.refuse(retrysafe.ErrBusy)
}

func insertArgs(k id, w *retrysafe.Write) []any {
	r := &w.Record
	return []any{
		k.text(), id(w.Owner).text(), k.lock(), termOf(w), bucketOf(w), int16(w.State), appendHead(nil, k, r), appendTail(nil, r),
		appendCheckpoint([]byte{}, w.Checkpoint), // never nil: that would be NULL
	}
}

// Swap implements [retrysafe.Swapper]. It waits for a transaction that has written the
// record.
func (t *Tx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	k := idOf(w.Ref)
	args := []any{
		k.text(), id(w.Expect.Owner).text(), w.Expect.Revision, id(ownerAfter(&w)).text(), termOf(&w), bucketOf(&w),
		int16(w.State), flagsOf(&w), appendNewHead([]byte{}, k, &w), appendTail(nil, &w.Record), appendNewCheckpoint([]byte{}, &w),
	}
	var got row
	swapped := false
	if err := t.db.query(ctx, t.s.sql.tx.swap.sql, args, func(scan func(...any) error) error {
		swapped = true
		return got.scan(scan)
	}); err != nil {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("swap key: %w", explain(err)))
	}
	failpoint.Hit("pg.tx.swapped")
	if swapped {
		return t.written(&got, w.Ref)
	}
	found, err := t.read(ctx, k)
	if err != nil {
		return retrysafe.Record{}, t.refuse(err)
	}
	why := refused(found, &w)
	if why.Value.Owner == w.Expect.Owner && !w.Expect.Owner.IsZero() { // its own write, which may not have reached the standby
		t.s.doubt.raise()
		if err := t.s.resolveDoubt(ctx); err != nil {
			return retrysafe.Record{}, t.refuse(err)
		}
	}
	return why.Value, t.refuse(why.Err)
}

// written returns the record that a step has stored. If what the step has left of an
// earlier write cannot be read, the step has failed for its caller and is refused.
func (t *Tx) written(w *row, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := w.of(ref)
	if err != nil {
		return retrysafe.Record{}, t.refuse(err)
	}
	return got, nil
}

// refuse rolls back and returns err, with [retrysafe.ErrTxDone] if the transaction had
// ended before.
func (t *Tx) refuse(err error) error {
	undone := t.db.rollback(context.WithoutCancel(context.Background())) // it also releases the connection of a pool
	if errors.Is(err, retrysafe.ErrTxDone) {
		return err
	}
	return errors.Join(err, undone)
}

// Commit commits the caller's transaction.
func (t *Tx) Commit(ctx context.Context) error {
	err := t.db.commit(ctx)
	if t.messages {
		t.s.outbox.listeners.notify() // also after an error: it may have committed
	}
	return err
}

// Rollback rolls the caller's transaction back. If it has ended already it returns
// [retrysafe.ErrTxDone].
func (t *Tx) Rollback(ctx context.Context) error { return t.db.rollback(ctx) }
