package pgstore

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// Lease implements [outbox.Store]. Leases take turns. No other statement waits for them,
// unless its shard is given to another worker.
func (b *Outbox) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (held outbox.Lease, err error) {
	params := [][]byte{worker[:], int8Param(max(term, 0).Microseconds())}
	err = b.do(ctx, "lease shards",
		query{statement: &b.sql.wait}, query{statement: &b.sql.turn},
		query{statement: &b.sql.count, params: params}, query{statement: &b.sql.forget},
		query{statement: &b.sql.shorten, params: params[1:]},
		query{statement: &b.sql.lease, params: params, each: func(v [][]byte) error {
			if held.Workers = int(int8At(v[0])); v[1] != nil {
				held.Shards = append(held.Shards, outbox.Shard{N: int(int2At(v[1])), Epoch: int8At(v[2])})
			}
			return nil
		}})
	if err != nil {
		return outbox.Lease{}, err
	}
	return held, nil
}
