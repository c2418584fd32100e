package sqlitestore

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// The migration creates 64 shards.
const _ = uint(64-outbox.Shards) + uint(outbox.Shards-64)

// holder is the worker that holds a shard, and until when.
type holder struct {
	epoch  int64
	worker []byte
	until  int64
}

type holders [outbox.Shards]holder

// hold reports whether a shard still has the epoch under which the worker leased it.
func (h *holders) hold(s outbox.Shard) bool {
	return s.N >= 0 && s.N < len(h) && h[s.N].epoch == s.Epoch
}

// Lease implements [outbox.Store].
func (b *Outbox) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (held outbox.Lease, err error) {
	err = b.write(ctx, "lease shards", func(ctx context.Context, tx execer) (err error) {
		held, err = b.lease(ctx, tx, worker[:], max(term, 0))
		return err
	})
	if err != nil {
		return outbox.Lease{}, err
	}
	return held, nil
}

// longTerm is how far ahead a term may end before it counts as written by a clock that
// was set back since.
const longTerm = time.Hour

func (b *Outbox) lease(ctx context.Context, tx execer, worker []byte, term time.Duration) (held outbox.Lease, err error) {
	at := b.s.now()
	now, until, latest := at.UnixMicro(), at.Add(term).UnixMicro(), at.Add(max(10*term, longTerm)).UnixMicro()
	if _, err := tx.ExecContext(ctx, countWorker, worker, until); err != nil {
		return held, err
	}
	if _, err := tx.ExecContext(ctx, shortenWorkers, latest); err != nil {
		return held, err
	}
	if _, err := tx.ExecContext(ctx, forgetWorkers, now); err != nil {
		return held, err
	}
	if err := tx.QueryRowContext(ctx, countWorkers).Scan(&held.Workers); err != nil {
		return held, err
	}
	held.Workers = max(held.Workers, 1) // a term of less than a microsecond has ended already
	shards, err := readHolders(ctx, tx)
	if err != nil {
		return held, err
	}
	share := 0
	if term > 0 {
		share = (outbox.Shards + held.Workers - 1) / held.Workers
	}
	var keep, give, take, long []int
	for n := range shards { // first the shards that the worker holds
		switch h := &shards[n]; {
		case h.until <= now:
		case !bytes.Equal(h.worker, worker):
			if h.until > latest {
				long = append(long, n)
			}
		case len(keep) < share:
			keep = append(keep, n)
			held.Shards = append(held.Shards, outbox.Shard{N: n, Epoch: h.epoch})
		default:
			give = append(give, n)
		}
	}
	for n := range shards {
		if h := &shards[n]; h.until <= now && len(held.Shards) < share {
			take = append(take, n)
			held.Shards = append(held.Shards, outbox.Shard{N: n, Epoch: h.epoch + 1})
		}
	}
	if err := update(ctx, tx, keep, keepShards, until); err != nil {
		return held, err
	}
	if err := update(ctx, tx, give, keepShards, now); err != nil {
		return held, err
	}
	if err := update(ctx, tx, long, keepShards, latest); err != nil {
		return held, err
	}
	return held, update(ctx, tx, take, takeShards, worker, until)
}

// update changes shards by a statement whose last argument is their list.
func update(ctx context.Context, tx execer, shards []int, query string, args ...any) error {
	if len(shards) == 0 {
		return nil
	}
	list, err := json.Marshal(shards)
	if err != nil {
		return err
	}
	return exec(ctx, tx, len(shards), query, append(args, string(list))...)
}

// readHolders reads the holders of all shards.
func readHolders(ctx context.Context, tx execer) (shards holders, err error) {
	rows, err := tx.QueryContext(ctx, selectShards)
	if err != nil {
		return shards, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var h holder
		if err := rows.Scan(&n, &h.epoch, &h.worker, &h.until); err != nil {
			return shards, err
		}
		if n >= 0 && n < len(shards) {
			shards[n] = h
		}
	}
	return shards, rows.Err()
}
