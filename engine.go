package retrysafe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options are what an [Engine] may be given besides its store. Nil and zero
// values are the safe defaults.
type Options struct {
	// Policy is how operations behave; the zero Policy is the safe one.
	Policy Policy
	// Observer is told what happens.
	Observer Observer
	// Namespace sets the downstream keys of this service apart from those of
	// others that call the same provider on behalf of the same callers.
	Namespace string
	// StoreTimeout bounds how long a call waits for the store before it is
	// refused. Default 1.5 s.
	StoreTimeout time.Duration
	// SettleTimeout bounds how long a finished operation waits for its answer to
	// become durable before it is told [ErrUnsettled]; the engine then goes on
	// stageOffering the answer by itself. Default 3 s.
	SettleTimeout time.Duration
	// MaxWaiters bounds how many calls wait for attempts in flight at once;
	// beyond it they are refused as under [InFlightConflict]. Default 10,000.
	MaxWaiters int
	// Clock and Rand replace time and randomness, for simulation. Rand must not
	// repeat itself: owners are drawn from it.
	Clock Clock
	Rand  io.Reader
}

// An Engine runs operations at most once per key, over one store, under one
// policy. It is safe for concurrent use and starts nothing by itself.
type Engine struct {
	*shared
	policy     Policy
	heartbeats *heartbeatQueue
}

// shared is what engines with different policies over one store have in common.
type shared struct {
	store         Store
	observer      Observer
	namespace     string
	storeTimeout  time.Duration
	settleTimeout time.Duration
	clock         Clock
	rand          io.Reader // nil: the system's

	breaker   breaker
	durations durations
	orphans   orphans
	waits     waiterSet
	offers    offers
}

// New returns an engine over s. Opts may be nil. A policy that its effect mode
// cannot carry is refused with an error that wraps [ErrPolicy].
func New(s Store, opts *Options) (*Engine, error) {
	if s == nil {
		return nil, errors.New("retrysafe: New needs a store")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.StoreTimeout < 0 || o.SettleTimeout < 0 || o.MaxWaiters < 0 {
		return nil, errors.New("retrysafe: an option is negative")
	}
	sh := &shared{
		store:         s,
		observer:      o.Observer,
		namespace:     o.Namespace,
		storeTimeout:  cmp.Or(o.StoreTimeout, 1500*time.Millisecond),
		settleTimeout: cmp.Or(o.SettleTimeout, 3*time.Second),
		clock:         o.Clock,
		rand:          o.Rand,
	}
	sh.waits.most = cmp.Or(o.MaxWaiters, 10_000)
	if sh.clock == nil {
		sh.clock = WallClock{}
	}
	return (&Engine{shared: sh}).With(o.Policy)
}

// With returns an engine over the same store under another policy. The two
// share all that is learnt of the store: breaker, durations, waiters.
func (e *Engine) With(p Policy) (*Engine, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	return &Engine{shared: e.shared, policy: p, heartbeats: &heartbeatQueue{clock: e.clock, every: p.Lease / beatsPerLease}}, nil
}

// Policy returns the engine's policy with its defaults filled in.
func (e *Engine) Policy() Policy { return e.policy }

// Store returns the engine's store.
func (e *Engine) Store() Store { return e.store }

// Healthy reports whether the store answers: false while the breaker refuses
// reservations.
func (e *Engine) Healthy() bool { return !e.breaker.open() }

// An Outcome is an answer and where it comes from.
type Outcome struct {
	Result
	// Replayed says that the answer was stored by an earlier attempt.
	Replayed bool
	// Attempt is the number of the attempt that gave the answer.
	Attempt int
	// Expires is when the answer is forgotten, by the store's clock.
	Expires time.Time
}

func outcomeOf(r *Record, replayed bool) Outcome {
	return Outcome{Result: *r.Result, Replayed: replayed, Attempt: r.Attempt, Expires: r.Deadline}
}

// maxSteps bounds how often one call meets a record that moves under its hands.
const maxSteps = 16

// Begin asks for the right to run the call. Exactly one of its results is not
// nil: an execution that must be settled, the outcome of an earlier attempt, or
// an error. A [*RefusedError] says why the call does not run; nothing runs
// unless the store has confirmed the reservation.
//
// The store's steps do not end with ctx: a client that hangs up leaves no
// reservation behind. If ctx is done before the operation starts, it is released.
func (e *Engine) Begin(ctx context.Context, c Call) (*Execution, *Outcome, error) {
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	b := e.newBegin(ctx, &c)
	defer b.done()
	return b.run()
}

const (
	maxScope = 1024
	maxKey   = 1024
)

// check reports what is wrong with the call itself.
func (c *Call) check() error {
	switch {
	case c.Scope == "":
		return fmt.Errorf("%w: Scope is empty; it names whose key this is", ErrInvalidCall)
	case c.Key == "":
		return fmt.Errorf("%w: Key is empty", ErrInvalidCall)
	case len(c.Scope) > maxScope || len(c.Key) > maxKey:
		return fmt.Errorf("%w: Scope or Key is over %d bytes", ErrInvalidCall, maxKey)
	case c.Retention < 0:
		return fmt.Errorf("%w: Retention is negative", ErrInvalidCall)
	}
	return nil
}
