package memstore

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

var _ retrysafe.TxStore[*Tx] = (*Store)(nil)

// BeginTx implements [retrysafe.TxStore]: it is [Store.Begin], and what the store
// knows and what its caller writes in are the same. It is for [retrysafe.DoTx],
// which commits: register business writes by [Tx.OnCommit] and no more.
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, *Tx, error) {
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	return tx, tx, nil
}
