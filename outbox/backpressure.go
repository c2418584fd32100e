package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFull says that the outbox has so many messages that it takes no more. The
// transaction was rolled back; its caller tries again later, or passes the error on.
var ErrFull = errors.New("outbox: it is full")

// BackpressureOptions are the options of a [Backpressure]. Nil and zero values are the defaults; a
// negative bound is none.
type BackpressureOptions struct {
	// MaxWaiting is how many messages may wait. Default 1,000,000.
	MaxWaiting int
	// MaxDead is how many dead letters there may be before new messages are refused.
	// Default 10,000.
	MaxDead int
	// Every is how long a count is used. Messages enqueued through it meanwhile
	// are added to it. Default 1 s.
	Every time.Duration
}

// A Backpressure is back-pressure: it refuses new messages while too many wait, so that the
// callers that fill an outbox notice that it is not emptied. No message is dropped. The
// messages are counted once in a while, so what other processes enqueue between two
// counts may exceed the bound. Counting needs a connection beside the transaction's.
//
// It is safe for concurrent use, and starts nothing.
type Backpressure struct {
	reporter DepthReporter
	opts     BackpressureOptions

	mu      sync.Mutex
	depth   Depth
	added   int       // since the count
	counted time.Time // zero: never
	busy    bool      // a count is under way
}

// NewBackpressure returns the back-pressure of the outbox whose depth g reports. Opts may be nil.
func NewBackpressure(g DepthReporter, opts *BackpressureOptions) (*Backpressure, error) {
	if g == nil {
		return nil, errors.New("outbox: NewBackpressure needs a DepthReporter")
	}
	var o BackpressureOptions
	if opts != nil {
		o = *opts
	}
	if o.Every < 0 {
		return nil, errors.New("outbox: an option is negative")
	}
	o.MaxWaiting, o.MaxDead, o.Every = cmp.Or(o.MaxWaiting, 1_000_000), cmp.Or(o.MaxDead, 10_000), cmp.Or(o.Every, time.Second)
	return &Backpressure{reporter: g, opts: o}, nil
}

// A Transaction is a transaction that messages can join, and that can be rolled back.
type Transaction interface {
	Enqueuer
	Rollback(ctx context.Context) error
}

// On returns an [Enqueuer] that enqueues into tx unless too many messages wait:
// pressure.On(tx).Enqueue(ctx, m).
func (b *Backpressure) On(tx Transaction) Enqueuer { return pressured{b, tx} }

// Check returns [ErrFull] if too many messages wait. It is for callers that want to know
// before they begin a transaction.
func (b *Backpressure) Check(ctx context.Context) error { return b.admit(ctx, 0) }

type pressured struct {
	b  *Backpressure
	tx Transaction
}

// Enqueue implements [Enqueuer].
func (e pressured) Enqueue(ctx context.Context, messages ...Message) error {
	if err := e.b.admit(ctx, len(messages)); err != nil {
		return errors.Join(err, e.tx.Rollback(context.WithoutCancel(ctx)))
	}
	return e.tx.Enqueue(ctx, messages...)
}

// admit counts n messages in, or returns why not. If the messages cannot be counted, none
// is taken.
func (b *Backpressure) admit(ctx context.Context, n int) error {
	if err := b.count(ctx); err != nil {
		return fmt.Errorf("outbox: count messages: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch waiting := b.depth.Waiting + b.added; {
	case b.opts.MaxWaiting > 0 && waiting+max(n, 1) > b.opts.MaxWaiting:
		return fmt.Errorf("%w: %d messages wait, and %d are allowed", ErrFull, waiting, b.opts.MaxWaiting)
	case b.opts.MaxDead > 0 && b.depth.Dead >= b.opts.MaxDead:
		return fmt.Errorf("%w: %d dead letters; redrive or drop them", ErrFull, b.depth.Dead)
	}
	b.added += n
	return nil
}

// count counts the messages if the last count is too old. Callers that come during a
// count use the one before, unless there is none.
func (b *Backpressure) count(ctx context.Context) error {
	b.mu.Lock()
	first := b.counted.IsZero()
	if !first && (b.busy || time.Since(b.counted) < b.opts.Every) {
		b.mu.Unlock()
		return nil
	}
	b.busy = true
	before := b.added
	b.mu.Unlock()
	depth, err := b.reporter.Depth(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = false
	if err != nil {
		return err
	}
	b.depth, b.counted, b.added = depth, time.Now(), max(b.added-before, 0)
	return nil
}
