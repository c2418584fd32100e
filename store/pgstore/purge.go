package pgstore

import (
	"context"
	"time"
)

// purgeBatch is how many rows one statement of a purge deletes.
const purgeBatch = 1000

// Purge implements [retrysafe.Store]. It leaves a locked row for the next time, so that
// it never waits. After each batch it pauses for as long as the batch took, so that other
// steps do not wait long for it. An answer that was stored before its lease ended may be
// kept longer by what was left of the lease. Receipts of the outbox that have expired count
// as records.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	var retentions []int32
	if err := s.background.do(ctx, query{statement: &s.sql.retentions, each: func(v [][]byte) error {
		retentions = append(retentions, int4At(v[0]))
		return nil
	}}); err != nil {
		return 0, explain(err)
	}
	deleted := 0
	for _, retention := range retentions {
		for more := true; more && deleted < limit; {
			batch, start := int64(min(limit-deleted, purgeBatch)), time.Now()
			n, err := s.purgeRetention(ctx, retention, batch)
			deleted += int(n)
			if err != nil {
				return deleted, explain(err)
			}
			if more = n == batch && deleted < limit; more {
				pause(ctx, time.Since(start))
			}
		}
	}
	n, err := s.purgeReceipts(ctx, limit-deleted)
	return deleted + n, explain(err)
}

// purgeRetention deletes one batch of the rows of one retention. After the last batch it
// moves rows that are not due yet out of the way of the next purge.
func (s *Store) purgeRetention(ctx context.Context, retention int32, batch int64) (n int64, err error) {
	params := [][]byte{int4Param(retention), int8Param(batch)}
	if err := s.background.do(ctx, query{statement: &s.sql.purge, params: params, count: &n}); err != nil || n == batch {
		return n, err
	}
	return n, s.background.do(ctx, query{statement: &s.sql.rebucketSettled, params: params})
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
