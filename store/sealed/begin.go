package sealed

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

// NewTx is [New] over a store that begins transactions, for [retrysafe.DoTx]. The key's
// record is sealed; the business writes in T are not.
func NewTx[T any](below retrysafe.TxStore[T], keys *Keyring) (retrysafe.TxStore[T], error) {
	if below == nil {
		return nil, errMissing
	}
	s, err := New(below, keys)
	if err != nil {
		return nil, err
	}
	beginning := beginner[T]{Store: s, below: below, keys: keys}
	if counter, ok := s.(retrysafe.Counter); ok {
		return countingBeginner[T]{beginning, counter}, nil
	}
	return beginning, nil
}

// beginner is a sealing store with sealing transactions.
type beginner[T any] struct {
	retrysafe.Store
	below retrysafe.TxStore[T]
	keys  *Keyring
}

func (s beginner[T]) Sealed() bool { return true }

func (s beginner[T]) BeginTx(ctx context.Context) (retrysafe.Tx, T, error) {
	below, own, err := s.below.BeginTx(ctx)
	if err != nil {
		return nil, own, err
	}
	if f, ok := below.(retrysafe.CreateCommitter); ok {
		return &finisher{tx{Tx: below, keys: s.keys}, f}, own, nil
	}
	return s.keys.Tx(below), own, nil
}

// countingBeginner is a beginner over a store that counts.
type countingBeginner[T any] struct {
	beginner[T]
	retrysafe.Counter
}

// finisher is a tx over a [retrysafe.CreateCommitter].
type finisher struct {
	tx
	below retrysafe.CreateCommitter
}

// CreateAndCommit refuses if a step of the transaction could not be read back. If its
// own record cannot be read back, that may have been committed.
func (t *finisher) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if t.poison != nil {
		return retrysafe.Record{}, t.Commit(ctx)
	}
	return t.keys.create(ctx, oneTrip{t.below}, &w)
}

// oneTrip is a creator that also commits.
type oneTrip struct{ retrysafe.CreateCommitter }

func (o oneTrip) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return o.CreateAndCommit(ctx, w)
}
