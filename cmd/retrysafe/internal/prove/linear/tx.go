package linear

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

// transaction does steps on a key in a transaction: it may reserve the key first, and
// it may be rolled back in the end.
func (w *worker) transaction(ctx context.Context, key uint32, seen [2]observation) error {
	tx, _, err := w.store.BeginTx(ctx)
	if err != nil {
		return nil // nothing was asked, and so nothing was seen
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it does nothing to one that has ended
	s := w.draw(key, seen)
	s.How = inTx
	if s.Do == load || w.chance(1, 2) {
		if s, err = w.reserve(ctx, tx, key, seen); err != nil || s == nil {
			return err
		}
	}
	return w.do(s, func(s *step) { w.write(ctx, tx, s) })
}

// reserve takes the key for a transaction, and returns what to do with what was found.
func (w *worker) reserve(ctx context.Context, tx retrysafe.Tx, key uint32, seen [2]observation) (next *step, err error) {
	s := &step{frame: frame{Key: key, Do: load, How: inTx}}
	if err := w.do(s, func(s *step) {
		r, err := tx.Reserve(ctx, refOf(key))
		s.saw(&r, err)
	}); err != nil {
		return nil, err
	}
	switch s.End {
	case missing:
		return &step{frame: frame{Key: key, Do: create, How: holding, Ask: w.drawCreate([2]observation{})}}, nil
	case done:
		return &step{frame: frame{Key: key, Do: swap, How: inTx, Ask: w.drawSwap([2]observation{s.Got, seen[0]})}}, nil
	default:
		return nil, nil
	}
}

// write does a step in a transaction, and ends it.
func (w *worker) write(ctx context.Context, tx retrysafe.Tx, s *step) {
	// DoTx inserts and commits in one round trip where the store can.
	if one, can := tx.(retrysafe.CreateCommitter); can && s.Do == create && w.chance(1, 2) {
		got, err := one.CreateAndCommit(ctx, s.Ask.create(s.Key))
		s.saw(&got, err)
		return
	}
	var got retrysafe.Record
	var err error
	if s.Do == create {
		got, err = tx.Create(ctx, s.Ask.create(s.Key))
	} else {
		got, err = tx.Swap(ctx, s.Ask.swap(s.Key))
	}
	if s.saw(&got, err); s.End == unclear {
		s.End = void // it was not committed
	}
	if s.End != done {
		return
	}
	if w.chance(1, 4) {
		_ = tx.Rollback(ctx) // what is not committed is rolled back, if not by this
		s.End = withdrawn
		return
	}
	if err := tx.Commit(ctx); err != nil {
		s.End, s.Got = unclear, observation{}
	}
}
