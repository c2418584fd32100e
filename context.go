package retrysafe

import (
	"context"
	"sync"
	"time"
)

// detachedContext is a context that carries its parent's values and nothing else of
// it: a client that hangs up cancels neither a reservation, nor a handler, nor
// a completion. It has a deadline of its own on the engine's clock, which counts
// from the moment it is first asked for.
//
// The channel and the timer behind Done are made when Done is first called: a store
// in memory never calls it, and most requests end long before the deadline.
type detachedContext struct {
	parent       context.Context
	clock        Clock
	limit        time.Duration
	deadlineOnly bool // it is for a step of the store; see [DeadlineOnly]

	mu         sync.Mutex
	errAsked   bool // by Err
	deadline   time.Time
	cause      error              // why it ended; nil while it lives
	cancelable *cancelableContext // once Done was called
}

// cancelableContext is a cancel context of the context package and what ends it.
type cancelableContext struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  Timer // nil if it had ended before
}

var storeContexts = sync.Pool{New: func() any { return new(detachedContext) }}

// newStoreContext returns a context for steps of the store: the caller's values, a
// deadline of the engine's, never the caller's cancellation.
func (e *Engine) newStoreContext(ctx context.Context) *detachedContext {
	d := storeContexts.Get().(*detachedContext)
	d.init(ctx, e.clock, e.storeTimeout)
	d.deadlineOnly = true
	return d
}

// done ends the context of a store's step that has returned. If its channel was never
// asked for, no goroutine waits for it and no context is derived from it, and it is
// reused.
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

// DeadlineOnly reports whether ctx is one that the engine gave to a store for one
// step, and that ends by its deadline alone while the engine waits for the step.
// A store that watches the deadline need not watch the channel, which costs a channel
// and a timer. Such a context is reused when the step has returned; values is one with
// the same values that may be kept longer.
func DeadlineOnly(ctx context.Context) (values context.Context, ok bool) {
	d, ok := ctx.(*detachedContext)
	if !ok || !d.deadlineOnly {
		return nil, false
	}
	return d.parent, true
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
	if d.cause == nil && !d.errAsked && d.deadline.IsZero() { // the first question: no step can have lasted too long yet
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

// Value returns the parent's value. Package context looks for cancellation by a key of
// its own: it must find that of d, never the parent's. So once there is a cancelable
// context d asks that one, which contexts derived from d then attach to without a
// goroutine; before, d asks the parent without its cancellation.
func (d *detachedContext) Value(key any) any {
	d.mu.Lock()
	own := d.cancelable
	d.mu.Unlock()
	if own != nil {
		return own.Value(key)
	}
	return context.WithoutCancel(d.parent).Value(key)
}

// stopTimer stops the timer of a context that has outlived its purpose without ending
// it.
func (d *detachedContext) stopTimer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancelable != nil && d.cancelable.timer != nil {
		d.cancelable.timer.Stop()
	}
}

// end ends the context for the given reason; only the first one counts.
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

// executionContext is the context an operation runs in. It outlives the client's
// connection, ends when the execution is lost or has run too long, and carries
// the execution itself.
type executionContext struct {
	detachedContext
	x *Execution
}

type executionKey struct{}

func (c *executionContext) Value(key any) any {
	if key == (executionKey{}) {
		return c.x
	}
	return c.detachedContext.Value(key)
}

// FromContext returns the execution that runs in ctx, if there is one.
func FromContext(ctx context.Context) (*Execution, bool) {
	x, _ := ctx.Value(executionKey{}).(*Execution)
	return x, x != nil
}
