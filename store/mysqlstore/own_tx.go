package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/sqltx"
)

var _ retrysafe.TxStore[*sql.Tx] = (*Store)(nil)

// BeginTx implements [retrysafe.TxStore], for [retrysafe.DoTx]. The transaction is READ
// COMMITTED. When ctx ends before the transaction, the transaction is rolled back.
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, *sql.Tx, error) {
	if !s.life.Enter() {
		return nil, nil, ErrClosed
	}
	defer s.life.Leave()
	t := new(ownTx)
	var err error
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if len(s.owned) > 0 { // the sessions are READ COMMITTED, and to say so takes a round trip
		opts = nil
	}
	t.Tx, err = sqltx.Begin(ctx, func(ctx context.Context) (*sql.Tx, error) { return s.db.BeginTx(ctx, opts) }, t.undo)
	if err != nil {
		return nil, nil, fmt.Errorf("begin: %w", explain(err))
	}
	return &Tx{s: s, tx: t, own: t}, t.Tx.Tx, nil
}

// ownTx is a transaction that the store has begun. It notices if its caller has ended it
// by a statement, also if that statement has begun another one, as START TRANSACTION does.
type ownTx struct {
	*sqltx.Tx
	// marked says that the transaction has the savepoint, which ends with it. It is read by the
	// end of the transaction's context too.
	marked atomic.Bool
}

// The savepoint that a transaction has from when it takes its key until the answer is stored.
const (
	mark   = `SAVEPOINT retrysafe_begun`
	unmark = `RELEASE SAVEPOINT retrysafe_begun`
)

// ended reports whether the transaction is not open on the connection any more.
func (t *ownTx) ended(tx *sql.Tx) bool {
	if t.marked.Load() {
		_, err := tx.ExecContext(context.Background(), unmark)
		t.marked.Store(err != nil)
		return isCode(err, codeNoSavepoint)
	}
	_, err := tx.ExecContext(context.Background(), `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`)
	return err == nil
}

// Commit commits. If the caller has ended the transaction by a statement there is nothing
// to commit.
func (t *ownTx) Commit() error {
	if t.ended(t.Tx.Tx) {
		_ = t.Tx.Rollback()
		return errEnded
	}
	failpoint.Hit("mysql.tx.ending")
	err := t.Tx.Commit()
	failpoint.Hit("mysql.tx.ended")
	return err
}

// undo rolls back. It returns [sql.ErrTxDone] if the transaction may be committed.
func (t *ownTx) undo(tx *sql.Tx) error {
	ended := t.ended(tx)
	err := tx.Rollback()
	if ended {
		return sql.ErrTxDone
	}
	return err
}
