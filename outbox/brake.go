package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFull says that so much waits in the outbox that nothing more is taken in. The
// transaction was rolled back; its caller tries again later, or tells its own.
var ErrFull = errors.New("outbox: too much waits in it")

// BrakeOptions are what a [Brake] may be given. Nil and zero values are the
// defaults; a negative bound is none.
type BrakeOptions struct {
	// MaxWaiting is how many messages may wait. Default 1,000,000.
	MaxWaiting int
	// MaxDead is how many dead letters there may be before nothing more is taken
	// in that might become one. Default 10,000.
	MaxDead int
	// Every is how long a count is believed. What is enqueued here meanwhile is
	// added to it. Default 1 s.
	Every time.Duration
}

// A Brake refuses messages while too much waits: an outbox that nobody empties is
// felt by those who fill it, and nothing is ever dropped. It counts now and then,
// so the bound is passed by what others enqueue between two counts. Counting needs
// a connection beside the transaction's.
//
// It is safe for concurrent use, and starts nothing.
type Brake struct {
	gauge Gauge
	opts  BrakeOptions

	mu      sync.Mutex
	depth   Depth
	added   int       // since it was counted
	counted time.Time // zero: never
	busy    bool      // somebody counts
}

// NewBrake returns a brake for the outbox that g tells the depth of. Opts may be
// nil.
func NewBrake(g Gauge, opts *BrakeOptions) (*Brake, error) {
	if g == nil {
		return nil, errors.New("outbox: a brake needs a gauge")
	}
	var o BrakeOptions
	if opts != nil {
		o = *opts
	}
	if o.Every < 0 {
		return nil, errors.New("outbox: an option is negative")
	}
	o.MaxWaiting, o.MaxDead, o.Every = cmp.Or(o.MaxWaiting, 1_000_000), cmp.Or(o.MaxDead, 10_000), cmp.Or(o.Every, time.Second)
	return &Brake{gauge: g, opts: o}, nil
}

// A Transaction is one that messages can join, and that can be rolled back.
type Transaction interface {
	Enqueuer
	Rollback(ctx context.Context) error
}

// On returns tx with the brake on: brake.On(tx).Enqueue(ctx, m).
func (b *Brake) On(tx Transaction) Enqueuer { return braked{b, tx} }

// Check returns [ErrFull] if too much waits. It is for those who would rather know
// before they begin a transaction.
func (b *Brake) Check(ctx context.Context) error { return b.admit(ctx, 0) }

type braked struct {
	b  *Brake
	tx Transaction
}

// Enqueue implements [Enqueuer].
func (e braked) Enqueue(ctx context.Context, messages ...Message) error {
	if err := e.b.admit(ctx, len(messages)); err != nil {
		return errors.Join(err, e.tx.Rollback(context.WithoutCancel(ctx)))
	}
	return e.tx.Enqueue(ctx, messages...)
}

// admit takes n messages in, or returns why not. One that nobody can count the
// messages of takes none.
func (b *Brake) admit(ctx context.Context, n int) error {
	if err := b.count(ctx); err != nil {
		return fmt.Errorf("outbox: count what waits: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch waiting := b.depth.Waiting + b.added; {
	case b.opts.MaxWaiting > 0 && waiting+max(n, 1) > b.opts.MaxWaiting:
		return fmt.Errorf("%w: %d messages, and %d are allowed", ErrFull, waiting, b.opts.MaxWaiting)
	case b.opts.MaxDead > 0 && b.depth.Dead >= b.opts.MaxDead:
		return fmt.Errorf("%w: %d dead letters; redrive or drop them", ErrFull, b.depth.Dead)
	}
	b.added += n
	return nil
}

// count counts if the last count is too old. While one counts the others believe
// it, unless there has been none.
func (b *Brake) count(ctx context.Context) error {
	b.mu.Lock()
	first := b.counted.IsZero()
	if !first && (b.busy || time.Since(b.counted) < b.opts.Every) {
		b.mu.Unlock()
		return nil
	}
	b.busy = true
	before := b.added
	b.mu.Unlock()
	depth, err := b.gauge.Depth(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = false
	if err != nil {
		return err
	}
	b.depth, b.counted, b.added = depth, time.Now(), max(b.added-before, 0)
	return nil
}
