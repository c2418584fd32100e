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
// The channel and the timer behind Done are made when somebody first asks for
// them: a store in memory never does, and most requests end long before.
type detachedContext struct {
	parent       context.Context
	clock        Clock
	limit        time.Duration
	deadlineOnly bool // of the store; otherwise of an operation

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

// newStep returns a context for steps of the store: the caller's values, a
// deadline of the engine's, never the caller's cancellation.
func (e *Engine) newStoreContext(ctx context.Context) *detachedContext {
	d := storeContexts.Get().(*detachedContext)
	d.init(ctx, e.clock, e.storeTimeout)
	d.deadlineOnly = true
	return d
}

// done ends the context of a step that has returned. If nobody has asked for its
// channel, nobody waits for it or has derived another from it, and it is reused.
func (d *detachedContext) done() {
	d.end(context.Canceled)
	if d.cancelable == nil {
		*d = detachedContext{}
		storeContexts.Put(d)
	}
}

// init prepares d in place.
func (d *detachedContext) init(parent context.Context, clock Clock, limit time.Duration) {
	d.parent, d.clock, d.limit = parent, clock, limit
}

// EndsByDeadlineAlone reports whether the owner waits for what the context was
// given to, and ends it afterwards: who watches its deadline need not watch its
// channel. The values are those of a context that may be kept, while this one is
// another step's soon.
func (d *detachedContext) EndsByDeadlineAlone() (values context.Context, ok bool) {
	return d.parent, d.deadlineOnly
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
		d.cancelable = new(cancelableContext)
		d.cancelable.Context, d.cancelable.cancel = context.WithCancelCause(context.WithoutCancel(d.parent))
		if d.cause != nil {
			d.cancelable.cancel(d.cause)
		} else {
			d.start()
			d.cancelable.timer = d.clock.AfterFunc(d.deadline.Sub(d.clock.Now()), func() { d.end(context.DeadlineExceeded) })
		}
	}
	return d.cancelable.Done()
}

func (d *detachedContext) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause == nil && !d.errAsked && d.deadline.IsZero() { // nobody has waited yet, so nothing can have lasted too long
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

// Value asks the inner context once there is one, so that contexts derived from
// d find the cancel context they can hang on to without a goroutine, and
// context.Cause finds the cause. That package's own key is an *int: who asks for
// one must not find the parent's cancellation, so the inner context is made.
func (d *detachedContext) Value(key any) any {
	if _, ok := key.(*int); ok {
		d.Done()
	}
	d.mu.Lock()
	inner := d.cancelable
	d.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return d.parent.Value(key)
}

// rest stops the clock of a context that has outlived its purpose without
// commitAttempt it.
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
	if d.cancelable != nil {
		d.cancelable.cancel(cause)
		d.cancelable.timer.Stop()
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
