package mysqlstore

import (
	"bytes"
	"context"
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

// Lease implements [outbox.Store]. Leases take turns: each locks the rows of all shards.
func (b *Outbox) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (held outbox.Lease, err error) {
	err = b.write(ctx, "lease shards", func(ctx context.Context, tx conn) (err error) {
		held, err = lease(ctx, tx, worker[:], max(term, 0))
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

func lease(ctx context.Context, tx execer, worker []byte, term time.Duration) (held outbox.Lease, err error) {
	shards, err := readHolders(ctx, tx, lockShards)
	if err != nil {
		return held, err
	}
	var now int64
	if err := runOn(ctx, tx, one(selectNow, &now)); err != nil {
		return held, err
	}
	until, latest := now+term.Microseconds(), now+max(10*term, longTerm).Microseconds()
	for _, s := range []statement{
		{sql: countWorker, args: []any{worker, until}}, {sql: shortenWorkers, args: []any{latest, latest}},
		{sql: forgetWorkers, args: []any{now}}, one(countWorkers, &held.Workers),
	} {
		if err := runOn(ctx, tx, s); err != nil {
			return held, err
		}
	}
	held.Workers = max(held.Workers, 1)
	share := 0
	if term > 0 {
		share = (outbox.Shards + held.Workers - 1) / held.Workers
	}
	var keep, give, take, long []any
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
	for _, u := range []struct {
		shards []any
		query  string
		args   []any
	}{{keep, keepShards, []any{until}}, {give, keepShards, []any{now}}, {long, keepShards, []any{latest}}, {take, takeShards, []any{worker, until}}} {
		if len(u.shards) == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, u.query+places(len(u.shards)), append(u.args, u.shards...)...); err != nil {
			return held, err
		}
	}
	return held, nil
}

// one is a statement with one value.
func one(query string, value any, args ...any) statement {
	return statement{sql: query, args: args, each: func(scan func(...any) error) error { return scan(value) }}
}

// readHolders reads the holders of all shards.
func readHolders(ctx context.Context, tx execer, query string) (shards holders, err error) {
	err = runOn(ctx, tx, statement{sql: query, each: func(scan func(...any) error) error {
		var n int
		var h holder
		if err := scan(&n, &h.epoch, &h.worker, &h.until); err != nil {
			return err
		}
		if n >= 0 && n < len(shards) {
			shards[n] = h
		}
		return nil
	}})
	return shards, err
}
