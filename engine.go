package retrysafe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"
)

// Options are what an [Engine] may be given besides its store. Nil and zero
// values are the safe defaults.
type Options struct {
	// Policy is how operations behave; the zero Policy is the safe one.
	Policy Policy
	// Observer receives the engine's events.
	Observer Observer
	// Tracer follows calls and attempts as spans; see package telemetry/otel. Nil: none
	// does, at no cost.
	Tracer Tracer
	// Namespace sets the downstream keys of this service apart from those of
	// others that call the same provider on behalf of the same callers.
	Namespace string
	// StoreTimeout bounds how long a call waits for the store before it is
	// refused. Default 1.5 s.
	StoreTimeout time.Duration
	// SettleTimeout bounds how long a finished operation waits for its answer to become
	// durable. Then its caller gets [ErrUnsettled], and the engine goes on offering the
	// answer to the store in the background. Default 3 s.
	SettleTimeout time.Duration
	// MaxWaiters bounds how many calls wait for attempts in flight at once. One tenant
	// may have as many as there is still room for, so at most half. Further calls are
	// refused as under [InFlightConflict]. Default 10,000.
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
	written    Policy // as its author wrote it: what other policies inherit from
	policy     Policy // with its defaults
	cautious   Policy // policy, for operations that were seen in no transaction yet; see [joinedOperations]
	heartbeats *heartbeatQueue
}

// shared is the state that engines with different policies over one store have in
// common.
type shared struct {
	store         Store
	observer      Observer
	tracer        Tracer
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
	joined    joinedOperations

	txStores txStores
}

// New returns an engine over s. Opts may be nil. A policy that its effect mode does not
// allow is refused with an error that wraps [ErrPolicy].
func New(s Store, opts *Options) (*Engine, error) {
	if s == nil {
		return nil, errors.New("retrysafe: New needs a store")
	}
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("retrysafe: New needs a store, and this %T is nil: check the error of what returned it", s)
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
		tracer:        o.Tracer,
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

// With returns an engine over the same store under another policy, which inherits from
// the engine's what it leaves unset. Both share the circuit breaker, the durations and
// the waiters.
func (e *Engine) With(p Policy) (*Engine, error) {
	written := p.inherit(e.written)
	if err := written.Check(); err != nil {
		return nil, err
	}
	p = written.withDefaults()
	n := &Engine{shared: e.shared, written: written, policy: p, cautious: p}
	n.heartbeats = &heartbeatQueue{clock: e.clock, every: p.Lease / beatsPerLease}
	if p.Lapse == LapseResume || p.Lapse == LapseRerun {
		n.cautious.Lapse = LapseQuarantine
	}
	return n, nil
}

// Policy returns the engine's policy with its defaults filled in.
func (e *Engine) Policy() Policy { return e.policy }

// Store returns the engine's store.
func (e *Engine) Store() Store { return e.store }

// Healthy reports whether the store answers. It is false while the circuit breaker
// refuses reservations. If it has opened because of failed writes, only a write that
// succeeds closes it.
func (e *Engine) Healthy() bool { return !e.breaker.open() }

// A Call asks for one operation under one key.
type Call struct {
	Ref
	// Operation names what is asked for, e.g. "POST /payments". It is for
	// people, metrics and Retry-After; the fingerprint decides what matches.
	Operation string
	// Fingerprint is the hash of the intent.
	Fingerprint Fingerprint
	// Refingerprint computes the fingerprint in the way that a stored one was computed,
	// before the algorithm, its secret or the choice of what counts has changed. It is
	// called if the stored one differs. If it reports false, or a record of another
	// algorithm is found and there is no Refingerprint, the record is refused rather
	// than guessed at.
	Refingerprint func(stored Fingerprint) (Fingerprint, bool)
	// Retention overrides the policy's for this key, if not zero.
	Retention time.Duration
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

// An Outcome is an answer and where it comes from. It may share its body with the
// store, and one that [Engine.Begin] or [Engine.Peek] returns its header too: these must not
// be changed.
type Outcome struct {
	Result
	// Replayed says that the answer was stored by an earlier attempt.
	Replayed bool
	// Attempt is the number of the attempt that gave the answer.
	Attempt int
	// Expires is when the answer is forgotten, by the store's clock. It is zero while the
	// outcome is under review.
	Expires time.Time
}

func outcomeOf(r *Record, replayed bool) Outcome {
	out := Outcome{Result: *r.Result, Replayed: replayed, Attempt: r.Attempt}
	if !r.UnderReview() { // its deadline is that of the next question
		out.Expires = r.Deadline
	}
	return out
}

// own returns a stored outcome with a header that its caller may change.
func (o Outcome) own() Outcome {
	if o.Header == nil {
		return o
	}
	header := make(map[string][]string, len(o.Header))
	for name, values := range o.Header {
		header[name] = slices.Clone(values)
	}
	o.Header = header
	return o
}

// Do runs fn once for the call's key and returns its answer, now and on every retry.
// When fn returns an error, [Execution.Fail] settles the attempt and Do returns that
// error. When fn panics, Fail settles the attempt and the panic goes on. If fn settles
// its execution itself, that settlement counts.
//
// Fn runs in [Execution.Context], on the caller's goroutine.
func (e *Engine) Do(ctx context.Context, c Call, fn func(context.Context, *Execution) (Result, error)) (Outcome, error) {
	x, replay, err := e.Begin(ctx, c)
	if err != nil {
		return Outcome{}, err
	}
	if replay != nil {
		return replay.own(), nil
	}
	defer x.Stop()
	result, err := x.run(fn)
	out, settled := x.Outcome(ctx)
	switch {
	case settled == nil: // fn completed it, or its transaction did
		return out, nil
	case x.HandedOver():
		rec := x.Record()
		return Outcome{}, errors.Join(err, e.refuse(ErrAccepted, &rec))
	case errors.Is(settled, ErrSettled): // released or quarantined by fn
		return Outcome{}, err
	case errors.Is(settled, ErrLost), errors.Is(settled, ErrUnsettled):
		return Outcome{}, errors.Join(err, settled)
	case err == nil && x.Fenced() && errors.Is(settled, ErrOpen):
		err = errRolledBack
	case err == nil && x.Fenced(): // not known yet; the settlement below waits and finds out
		err = settled
	}
	if err != nil {
		end := x.Fail
		if e.policy.OnFailure == FailureRetry {
			end = x.Release
		}
		failed := end(ctx, err)
		if errors.Is(failed, ErrSettled) { // its transaction had committed after all
			return x.Outcome(ctx)
		}
		return Outcome{}, errors.Join(err, failed)
	}
	if err := x.Complete(ctx, result); err != nil {
		return Outcome{}, err
	}
	return x.Outcome(ctx)
}

// DoJSON is [Engine.Do] for a function that returns a value: the value is stored as JSON,
// and every retry gets it. Intent is what is asked for, such as the request's struct: a
// call with this key and another intent is refused with [ErrMismatch]. The fingerprint of
// the call is made of it, by [FingerprintJSON].
func DoJSON[T any](ctx context.Context, e *Engine, c Call, intent any, fn func(context.Context, *Execution) (T, error)) (T, error) {
	var value T
	var err error
	if c.Fingerprint, err = FingerprintJSON(c.Scope, c.Operation, intent); err != nil {
		return value, err
	}
	out, err := e.Do(ctx, c, func(ctx context.Context, x *Execution) (Result, error) {
		v, err := fn(ctx, x)
		if err != nil {
			return Result{}, err
		}
		body, err := json.Marshal(v)
		if err != nil {
			return Result{}, fmt.Errorf("the result is no JSON: %w", err)
		}
		return Result{Status: 200, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: body}, nil
	})
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(out.Body, &value); err != nil {
		return *new(T), fmt.Errorf("%w: the stored result is no %T: %w", ErrUnreadable, value, err)
	}
	return value, nil
}

// errRolledBack: the transaction that was to hold the answer did not commit.
var errRolledBack = errors.New("retrysafe: the transaction that held the answer rolled back")

// errGoexit is the error of a function that ended its goroutine.
var errGoexit = errors.New("the operation ended its goroutine")

// run calls fn and settles the execution if fn does not return.
func (x *Execution) run(fn func(context.Context, *Execution) (Result, error)) (result Result, err error) {
	back := false
	defer func() {
		if back {
			return
		}
		p := recover()
		why := errGoexit
		if p != nil {
			why = fmt.Errorf("panic: %v", p)
		}
		_ = x.Fail(x.ctx.parent, why) // the caller gets the panic; the record keeps the reason
		if p != nil {
			panic(p) //nolint:forbidigo // the operation's own panic goes on
		}
	}()
	result, err = fn(x.Context(), x)
	back = true
	return result, err
}
