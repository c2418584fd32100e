package memstore

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

var _ retrysafe.TxStore[*Tx] = (*Store)(nil)

// BeginTx implements [retrysafe.TxStore]: it is [Store.Begin]. Both results are the
// same transaction. It is for [retrysafe.DoTx], which commits: only register business
// writes with [Tx.OnCommit].
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, *Tx, error) {
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	return tx, tx, nil
}
