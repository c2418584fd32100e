package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Tx is a transaction of the caller's that the store has joined. It is not safe for
// concurrent use. A step that is refused rolls the transaction back, so that a caller
// that ignores the error cannot commit.
type Tx struct {
	s  *Store
	tx transaction
}

// transaction is a [sql.Tx] of the caller's, or a [watchedTx] that the store has begun.
type transaction interface {
	execer
	Commit() error
	Rollback() error
}

// Tx joins a transaction over the store's own database.
func (s *Store) Tx(tx *sql.Tx) *Tx { return &Tx{s, tx} }

// Reserve implements [retrysafe.Tx]. It takes SQLite's write lock, which only one
// transaction has at a time.
func (t *Tx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	// A write that changes nothing takes the write lock before the read.
	if _, err := t.tx.ExecContext(ctx, `UPDATE retrysafe_fence SET revision = revision`); err != nil {
		return retrysafe.Record{}, t.s.explain(ctx, t.refuse(fmt.Errorf("reserve key: %w", err)))
	}
	failpoint.Hit("sqlite.tx.locked")
	got, err := decode(t.tx.QueryRowContext(ctx, selectKey, idOf(ref)), t.s.now)
	if err == nil && got.Ref != ref {
		return retrysafe.Record{}, errOther
	}
	return got, err
}

// Create implements [retrysafe.Tx].
func (t *Tx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.do(ctx, request{create: true, w: w})
}

// Swap implements [retrysafe.Swapper].
func (t *Tx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.do(ctx, request{w: w})
}

func (t *Tx) do(ctx context.Context, q request) (retrysafe.Record, error) {
	answers, err := t.s.apply(ctx, t.tx, []request{q})
	if err != nil {
		return retrysafe.Record{}, t.refuse(err)
	}
	got, err := answers[0].Value, answers[0].Err
	if err == nil && q.create && !got.ReadAt.Equal(got.UpdatedAt) {
		err = retrysafe.ErrExists // the same Create was sent twice, which one transaction does only by mistake
	}
	if err != nil {
		return got, t.refuse(err)
	}
	return got, nil
}

// refuse rolls back and returns err, with [retrysafe.ErrTxDone] if the transaction had
// ended before.
func (t *Tx) refuse(err error) error {
	if rollback := t.Rollback(context.Background()); rollback != nil {
		return errors.Join(err, rollback)
	}
	return err
}

// Commit commits the caller's transaction.
func (t *Tx) Commit(context.Context) error { return t.tx.Commit() }

// Rollback rolls the caller's transaction back. If it has ended before it returns
// [retrysafe.ErrTxDone].
func (t *Tx) Rollback(context.Context) error {
	err := t.tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) {
		return done(err)
	}
	return err
}

// done returns the error of a step in a transaction that has ended.
func done(err error) error { return fmt.Errorf("%w: %w", retrysafe.ErrTxDone, err) }
