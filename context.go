package retrysafe

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/internal/pool"
)

// detachedContext is a context that carries its parent's values, but neither its
// cancellation nor its deadline: a client that hangs up cancels neither a reservation,
// nor a handler, nor a completion. It has a deadline of its own on the engine's clock.
// That is set when a method first needs it.
//
// The channel and the timer behind Done are made when Done is first called. A store in
// memory never calls it, and most requests end long before the deadline.
type detachedContext struct {
	parent       context.Context
	clock        Clock
	limit        time.Duration
	deadlineOnly bool // it was made for a step of the store; see [DeadlineOnly]

	mu         sync.Mutex
	errAsked   bool // Err was called
	deadline   time.Time
	cause      error              // why it ended; nil before
	cancelable *cancelableContext // nil until Done, or an end with a cause of its own, needs it
}

// cancelableContext is a cancel context of the context package, and the timer that ends
// it.
type cancelableContext struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  Timer // nil if the context had ended before Done was called
}

var storeContexts pool.Of[detachedContext]

// newStoreContext returns a context for steps of the store: with the caller's values
// and the engine's deadline, without the caller's cancellation.
func (e *Engine) newStoreContext(ctx context.Context) *detachedContext {
	d := storeContexts.Get()
	d.init(ctx, e.clock, e.storeTimeout)
	d.deadlineOnly = true
	return d
}

// done ends the context after the store's step has returned. If Done was never called,
// no goroutine waits for the context and no context is derived from it, so it goes back
// to the pool.
func (d *detachedContext) done() {
	d.mu.Lock()
	shared := d.cancelable != nil
	d.mu.Unlock()
	if shared {
		d.end(context.Canceled)
		return
	}
	*d = detachedContext{}
	storeContexts.Put(d)
}

// init prepares d in place.
func (d *detachedContext) init(parent context.Context, clock Clock, limit time.Duration) {
	d.parent, d.clock, d.limit = parent, clock, limit
}

// DeadlineOnly reports whether the engine made ctx for one step of a store. Such a
// context ends only by its deadline while the engine waits for the step, so a store
// that watches the deadline need not call Done, which costs a channel and a timer. The
// context is reused after the step; values is a context with the same values that never
// ends and may be kept longer.
func DeadlineOnly(ctx context.Context) (values context.Context, ok bool) {
	d, ok := ctx.(*detachedContext)
	if !ok || !d.deadlineOnly {
		return nil, false
	}
	return context.WithoutCancel(d.parent), true
}

func (d *detachedContext) Deadline() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start()
	return d.deadline, true
}

// start sets the deadline, once. The caller holds mu.
func (d *detachedContext) start() {
	if d.deadline.IsZero() {
		d.deadline = d.clock.Now().Add(d.limit)
	}
}

func (d *detachedContext) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancelable == nil {
		d.cancelable = d.newCancelable()
	}
	return d.cancelable.Done()
}

// newCancelable returns the context behind Done. The caller holds mu.
func (d *detachedContext) newCancelable() *cancelableContext {
	c := new(cancelableContext)
	c.Context, c.cancel = context.WithCancelCause(context.WithoutCancel(d.parent))
	if d.cause != nil {
		c.cancel(d.cause)
		return c
	}
	d.start()
	c.timer = d.clock.AfterFunc(d.deadline.Sub(d.clock.Now()), func() { d.end(context.DeadlineExceeded) })
	return c
}

func (d *detachedContext) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause == nil && !d.errAsked && d.deadline.IsZero() { // the first call: no step has taken any time yet
		d.errAsked = true
		return nil
	}
	d.start()
	switch {
	case d.cause == nil && d.clock.Now().Before(d.deadline):
		return nil
	case d.cause == nil || d.cause == context.DeadlineExceeded: //nolint:errorlint // the very value that end was given
		return context.DeadlineExceeded
	default:
		return context.Canceled
	}
}

// Value returns the parent's value. Package context looks for cancellation by a private
// key: it must find that of d, never the parent's. Once there is a cancelable context,
// Value asks it, so that contexts derived from d attach to it without a goroutine.
// Before that, Value asks the parent itself, because each lookup in a context of
// WithoutCancel allocates. If it finds a cancel context, WithoutCancel decides whether
// that is the parent's cancellation or a value like any other.
func (d *detachedContext) Value(key any) any {
	d.mu.Lock()
	own := d.cancelable
	d.mu.Unlock()
	if own != nil {
		return own.Value(key)
	}
	v := d.parent.Value(key)
	if reflect.TypeOf(v) == cancelContextType {
		return context.WithoutCancel(d.parent).Value(key)
	}
	return v
}

// cancelContextType is the type of what package context finds by its private key.
var cancelContextType = func() reflect.Type {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return reflect.TypeOf(ctx)
}()

// stopTimer stops the timer of a context that is no longer needed, without ending the
// context.
func (d *detachedContext) stopTimer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancelable != nil && d.cancelable.timer != nil {
		d.cancelable.timer.Stop()
	}
}

// end ends the context with the given cause. The first cause stays.
func (d *detachedContext) end(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause != nil {
		return
	}
	d.cause = cause
	switch {
	case d.cancelable != nil:
		d.cancelable.cancel(cause)
		d.cancelable.timer.Stop()
	case cause != context.Canceled && cause != context.DeadlineExceeded: //nolint:errorlint // the very values
		d.cancelable = d.newCancelable() // Err does not tell the cause: context.Cause finds it here
	}
}

// executionContext is the context that an operation runs in. It carries the execution.
// It outlives the client's connection, and ends when the execution has lost its record
// or has run too long.
type executionContext struct {
	detachedContext
	x *Execution
}

type executionKey struct{}

func (c *executionContext) Value(key any) any {
	if key == (executionKey{}) {
		return c.x
	}
	if key == (tracerKey{}) && c.x != nil && c.x.e.tracer != nil {
		return c.x.e.tracer
	}
	return c.detachedContext.Value(key)
}

// FromContext returns the execution that runs in ctx, if there is one.
func FromContext(ctx context.Context) (*Execution, bool) {
	x, _ := ctx.Value(executionKey{}).(*Execution)
	return x, x != nil
}
