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

// Tx is a transaction of the caller's that the store has joined. It is not safe
// for concurrent use. A step that is refused rolls the transaction back, so that
// a caller who ignores it cannot commit. Join the outermost transaction: of a
// savepoint only the savepoint would be rolled back.
type Tx struct {
	s  *Store
	db joined
}

// joined is a transaction of either kind.
type joined interface {
	query(ctx context.Context, sql string, args []any, each func(scan func(...any) error) error) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

// Tx joins a transaction over the store's own database.
func (s *Store) Tx(tx pgx.Tx) *Tx { return &Tx{s, native{tx}} }

// SQLTx joins a transaction of database/sql over the store's own database, under
// any driver for PostgreSQL.
func (s *Store) SQLTx(tx *sql.Tx) *Tx { return &Tx{s, standard{tx}} }

type native struct{ tx pgx.Tx }

func (n native) query(ctx context.Context, sql string, args []any, each func(func(...any) error) error) error {
	// One that was ended by a statement of its own would commit each step by itself.
	if _, own := n.tx.(*OwnTx); !own && n.tx.Conn().PgConn().TxStatus() == 'I' {
		return pgx.ErrTxClosed
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

// commit does not end with ctx: the driver would cancel it at the server.
func (n native) commit(ctx context.Context) error { return n.tx.Commit(context.WithoutCancel(ctx)) }

func (n native) rollback(ctx context.Context) error {
	if err := n.tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

type standard struct{ tx *sql.Tx }

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

func (n standard) rollback(context.Context) error {
	if err := n.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// Reserve implements [retrysafe.Tx]. The key is locked for the length of the
// transaction, without waiting; the look-up comes in a later statement, so that
// it sees what was committed before.
func (t *Tx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	k := idOf(ref)
	free := false
	err := t.db.query(ctx, t.s.sql.hold, []any{k.lock()}, func(scan func(...any) error) error { return scan(&free) })
	if err != nil {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("reserve key: %w", explain(err)))
	}
	if !free {
		return retrysafe.Record{}, retrysafe.ErrBusy
	}
	w, err := t.look(ctx, k)
	if err == nil {
		err = t.s.certain(ctx)
	}
	if err != nil {
		return retrysafe.Record{}, err
	}
	return w.of(ref)
}

func (t *Tx) look(ctx context.Context, k id) (w row, err error) {
	found := false
	if err := t.db.query(ctx, t.s.sql.look, []any{k.text()}, func(scan func(...any) error) error {
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

// scan reads a row that was selected for database/sql.
func (w *row) scan(scan func(...any) error) error {
	var k, owner []byte
	if err := scan(&k, &owner, &w.revision, &w.deadline, &w.created, &w.state, &w.head, &w.tail, &w.checkpoint, &w.now); err != nil {
		return err
	}
	copy(w.id[:], k)
	copy(w.owner[:], owner)
	return nil
}

// Create implements [retrysafe.Tx]. A key that exists, or that another
// transaction holds, refuses it.
func (t *Tx) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	k := idOf(r.Ref)
	var got row
	stored := false
	err := t.db.query(ctx, t.s.sql.put, putArgs(k, &r), func(scan func(...any) error) error {
		stored = true
		return got.scan(scan)
	})
	if err == nil && stored {
		return got.of(r.Ref)
	}
	if err != nil && !isCode(err, "23505") {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("create key: %w", explain(err)))
	}
	if err != nil { // the transaction has failed already
		return retrysafe.Record{}, t.refuse(retrysafe.ErrExists)
	}
	return retrysafe.Record{}, t.refuse(retrysafe.ErrBusy)
}

func putArgs(k id, r *retrysafe.Record) []any {
	return []any{k.text(), id(r.Owner).text(), k.lock(), termOf(r), keepOf(r), int16(r.State), appendHead(nil, k, r), appendTail(nil, r), checkpointArg(r)}
}

// checkpointArg is never nil: that would be NULL.
func checkpointArg(r *retrysafe.Record) []byte { return appendCheckpoint([]byte{}, r.Checkpoint) }

// Swap implements [retrysafe.Swapper]. It waits for another transaction that has
// written the record.
func (t *Tx) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	k := idOf(r.Ref)
	head := []byte{}
	if !r.Claim.IsZero() {
		head = appendHead(head, k, &r)
	}
	args := []any{
		k.text(), id(r.Owner).text(), r.Revision, id(ownerAfter(&r)).text(), termOf(&r), keepOf(&r),
		int16(r.State), flagsOf(&r), head, appendTail(nil, &r), checkpointArg(&r),
	}
	var got row
	swapped := false
	if err := t.db.query(ctx, t.s.sql.move, args, func(scan func(...any) error) error {
		swapped = true
		return got.scan(scan)
	}); err != nil {
		return retrysafe.Record{}, t.refuse(fmt.Errorf("swap key: %w", explain(err)))
	}
	failpoint.Hit("pg.tx.swapped")
	if swapped {
		return got.of(r.Ref)
	}
	w, err := t.look(ctx, k)
	if err != nil {
		return retrysafe.Record{}, t.refuse(err)
	}
	why := refused(w, &r)
	if why.Value.Owner == r.Owner && !r.Owner.IsZero() { // its own write takes nobody's word but the standby's
		t.s.doubts.raise()
		if err := t.s.certain(ctx); err != nil {
			return retrysafe.Record{}, t.refuse(err)
		}
	}
	return why.Value, t.refuse(why.Err)
}

// refuse rolls back and returns err.
func (t *Tx) refuse(err error) error {
	if rollback := t.db.rollback(context.WithoutCancel(context.Background())); rollback != nil {
		return errors.Join(err, rollback)
	}
	return err
}

// Commit commits the caller's transaction.
func (t *Tx) Commit(ctx context.Context) error { return t.db.commit(ctx) }

// Rollback rolls the caller's transaction back. One that has ended is no error.
func (t *Tx) Rollback(ctx context.Context) error { return t.db.rollback(ctx) }
