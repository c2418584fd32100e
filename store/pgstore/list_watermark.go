package pgstore

import (
	"context"
	"math"
	"sync"
	"time"
)

// noWatermark is below every slot.
const noWatermark = math.MinInt32

// background sends what runs beside the callers' steps: list, count and purge. They take
// turns, so that they need one connection.
type background struct {
	mu    sync.Mutex
	conns *connPool

	// watermark: every row whose slot is not above it is final.
	watermark int32
	moved     time.Time // when the watermark last moved
	rewound   time.Time // when all slots were last looked at
}

// do sends queries when it is their turn.
func (b *background) do(ctx context.Context, queries ...query) error {
	if !b.conns.s.life.Enter() {
		return ErrClosed
	}
	defer b.conns.s.life.Leave()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.conns.do(context.WithoutCancel(ctx), queries...)
}

// rewind is how often all slots are looked at, not only those above the watermark: a
// transaction that takes very long may commit a row below it.
const rewind = time.Hour

// advance moves the watermark, at most once a second, and returns the slot from which to
// look this time.
func (b *background) advance(ctx context.Context) (int32, error) {
	b.mu.Lock()
	from, now := b.watermark, time.Now()
	if now.Sub(b.moved) < time.Second {
		b.mu.Unlock()
		return from, nil
	}
	rewinds := now.Sub(b.rewound) > rewind
	if rewinds {
		from = noWatermark
	}
	b.moved = now
	b.mu.Unlock()

	sql, next := &b.conns.s.sql, from
	err := b.do(ctx, query{statement: &sql.rebucketRenewed, params: [][]byte{int4Param(from)}},
		query{statement: &sql.watermark, params: [][]byte{int4Param(from)}, each: func(v [][]byte) error {
			next = max(from, int4At(v[0]))
			return nil
		}})
	if err != nil {
		return from, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watermark = next; rewinds {
		b.rewound = now
	}
	return from, nil
}
