package pgstore

import (
	"context"
	"math"
	"sync"
	"time"
)

// noWatermark is below every slot.
const noWatermark = math.MinInt32

// turns lets statements that run beside the callers' steps take turns, so that they need
// one connection.
type turns struct {
	mu    sync.Mutex
	conns *connPool
}

// do sends queries when it is their turn.
func (t *turns) do(ctx context.Context, queries ...query) error {
	if !t.conns.s.life.Enter() {
		return ErrClosed
	}
	defer t.conns.s.life.Leave()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.conns.do(context.WithoutCancel(ctx), queries...)
}

// background sends the statements of duties: lists of what is due, and purges. Other lists
// and counts have turns of their own, because a duty may take long: once an hour it reads
// all slots.
type background struct {
	turns

	// state guards what follows. It is not held while a statement runs.
	state sync.Mutex
	// watermark: every row whose slot is not above it is final.
	watermark int32
	moved     time.Time // when the watermark last moved
	moving    bool      // a caller of advance reads the next one
	rewound   time.Time // when all slots were last looked at

	// clock is the slot of the database's time when the watermark last moved.
	clock int32
	// ahead is the slot above which leases are still to be shortened, if shortens.
	ahead    int32
	shortens bool
}

// rewind is how often all slots are looked at, not only those above the watermark: a
// transaction that takes very long may commit a row below it. Nor does a process that
// starts know whether the clock was set back before.
const rewind = time.Hour

// advance moves the watermark, at most once a second, and returns the slot from which to
// look this time.
func (b *background) advance(ctx context.Context) (int32, error) {
	b.state.Lock()
	from, now := b.watermark, time.Now()
	if b.moving || now.Sub(b.moved) < time.Second {
		b.state.Unlock()
		return from, nil
	}
	rewinds := now.Sub(b.rewound) > rewind
	if rewinds {
		from = noWatermark
	}
	b.moved, b.moving = now, true
	b.state.Unlock()
	defer func() {
		b.state.Lock()
		defer b.state.Unlock()
		b.moving = false
	}()

	sql, next, clock := &b.conns.s.sql, from, int32(0)
	err := b.do(ctx, query{statement: &sql.rebucketRenewed, params: [][]byte{int4Param(from)}},
		query{statement: &sql.watermark, params: [][]byte{int4Param(from)}, each: func(v [][]byte) error {
			next, clock = max(from, int4At(v[0])), int4At(v[1])
			return nil
		}})
	if err != nil {
		return from, err
	}
	if b.advanced(next, clock, rewinds) {
		from = noWatermark
	}
	return from, b.shorten(ctx)
}

// recent returns a watermark for a list of what is in flight. It is false if this process
// has not read one: the first costs a look at all slots, which is for a duty.
func (b *background) recent(ctx context.Context) (from int32, known bool, err error) {
	from, moved := b.last()
	if from != noWatermark && time.Since(moved) > time.Minute { // no duty runs here, and the clock may have been set back
		_, err = b.advance(ctx)
		from, _ = b.last()
	}
	return from, from != noWatermark, err
}

// last returns the watermark, and when it was moved.
func (b *background) last() (int32, time.Time) {
	b.state.Lock()
	defer b.state.Unlock()
	return b.watermark, b.moved
}

// advanced notes a new watermark and the clock at which it was read. If the clock was set
// back, rows get slots below the watermark again: it is dropped, and advanced reports
// that all slots have to be looked at.
func (b *background) advanced(next, clock int32, rewound bool) (setBack bool) {
	b.state.Lock()
	defer b.state.Unlock()
	setBack = b.clock > clock
	b.watermark, b.clock = next, clock
	switch {
	case setBack:
		b.watermark, b.rewound = noWatermark, b.moved
	case rewound:
		b.rewound = b.moved
	}
	if setBack || rewound {
		b.shortens, b.ahead = true, clock+int32(tolerated/time.Second)
	}
	return setBack
}

// tolerated is how far a lease may seem too long, because the clock was set back by no
// more than that, and is left alone. Ordinary leases are shorter: then there is no row
// to look at.
const tolerated = time.Minute

// shorten shortens the leases that were written before the clock was set back, part by
// part. The lease of a dead owner would otherwise last until the clock has passed its
// deadline again. If ctx ends meanwhile, the next call goes on.
func (b *background) shorten(ctx context.Context) error {
	sql := &b.conns.s.sql
	for {
		b.state.Lock()
		from, shortens := b.ahead, b.shortens
		b.state.Unlock()
		if !shortens {
			return nil
		}
		to, more := int32(math.MaxInt32), false
		if err := b.do(ctx, query{statement: &sql.partOfSlots, params: [][]byte{int4Param(from)}, each: func(v [][]byte) error {
			if more = v[0] != nil; more {
				to = int4At(v[0])
			}
			return nil
		}}); err != nil {
			return err
		}
		if err := b.do(ctx, query{statement: &sql.shorten, params: [][]byte{int4Param(from), int4Param(to)}}); err != nil {
			return err
		}
		b.state.Lock()
		if b.ahead == from { // no other caller has gone on, and the clock was not set back again
			b.ahead, b.shortens = to, more
		}
		b.state.Unlock()
	}
}
