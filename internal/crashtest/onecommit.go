package crashtest

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

// OneCommit is what a [Place] needs to run the operation by [retrysafe.DoTx] over
// s, with a fuse around each step of the transaction. Exec runs a statement in it.
func OneCommit[T any](s retrysafe.TxStore[T], exec func(ctx context.Context, tx T, statement string) error) func(context.Context, *retrysafe.Engine, string, retrysafe.Result, *Fuse) (retrysafe.Outcome, error) {
	return func(ctx context.Context, e *retrysafe.Engine, effect string, r retrysafe.Result, f *Fuse) (retrysafe.Outcome, error) {
		return retrysafe.DoTx(ctx, e, minedTxStore[T]{s, f}, Call, func(ctx context.Context, tx T) (retrysafe.Result, error) {
			f.Pass()
			err := exec(ctx, tx, effect)
			f.Pass()
			return r, err
		})
	}
}

// minedTxStore begins transactions with a fuse before and after each step.
type minedTxStore[T any] struct {
	retrysafe.TxStore[T]
	fuse *Fuse
}

func (m minedTxStore[T]) BeginTx(ctx context.Context) (retrysafe.Tx, T, error) {
	tx, own, err := m.TxStore.BeginTx(ctx)
	if err != nil {
		return nil, own, err
	}
	if f, ok := tx.(retrysafe.Finisher); ok {
		return minedFinisher{minedTx{tx, m.fuse}, f}, own, nil
	}
	return minedTx{tx, m.fuse}, own, nil
}

type minedTx struct {
	retrysafe.Tx
	fuse *Fuse
}

func (m minedTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Tx.Reserve(ctx, ref) })
}

func (m minedTx) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Tx.Create(ctx, r) })
}

func (m minedTx) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Tx.Swap(ctx, r) })
}

func (m minedTx) Commit(ctx context.Context) error {
	m.fuse.Pass()
	defer m.fuse.Pass()
	return m.Tx.Commit(ctx)
}

// minedFinisher is the transaction of a store that stores and commits in one.
type minedFinisher struct {
	minedTx
	f retrysafe.Finisher
}

func (m minedFinisher) CreateAndCommit(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.f.CreateAndCommit(ctx, r) })
}
