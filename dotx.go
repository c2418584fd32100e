package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// DoTx runs fn once for the call's key and returns its answer, now and on every retry,
// like [Engine.Do], for operations whose effects are all in the store's own database:
// reservation, business writes and answer are one transaction and one commit. The
// engine's effects must be [EffectsInTx], and s must keep the engine's records: as a
// rule it is the engine's own store. If s is another value, the engine looks for the first
// record that is committed in it; if its own store does not have that, DoTx returns an
// error that wraps [ErrPolicy], and a retry the answer.
//
// Fn writes in the transaction that it is given and neither commits it nor rolls it
// back. If it ends the transaction itself, its effects may be stored without an answer:
// the outcome is set aside as Unknown, and DoTx returns [ErrTxDone]. When fn returns an
// error, panics or ends its goroutine, the transaction is
// rolled back, nothing is stored, the key is free, and DoTx returns that error; so
// [Policy.OnFailure] and [Policy.Lapse] do not apply. Otherwise its result is the
// answer, whatever its status. Fn runs on the caller's goroutine, at most once, in a
// context that carries ctx's values but not its cancellation and ends after
// [Policy.MaxRun]. A transaction that lasts longer is rolled back, by some stores
// before fn returns.
//
// While the transaction is open the key has no visible record. Another call with this
// key is refused with [ErrInFlight], whatever its fingerprint, or waits if
// [Policy.InFlight] says so.
//
// An answer is returned only when it is committed. If the reply to the commit is lost,
// DoTx finds out how the commit ended. It then returns the answer; or an error if the
// transaction was rolled back, marked by [NotExecuted] where fn cannot have committed
// by itself; or [ErrUnsettled] if that cannot be known yet. A retry with the same key
// is safe in every case: it runs only what was not committed.
func DoTx[T any](ctx context.Context, e *Engine, s TxStore[T], c Call, fn func(context.Context, T) (Result, error)) (Outcome, error) {
	return e.doTx(ctx, &c, s, func(ctx context.Context) (Tx, operation, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context) (Result, error) { return fn(ctx, own) }, err
	})
}

// operation runs fn in the transaction that begin has opened.
type operation func(context.Context) (Result, error)

func (e *Engine) doTx(ctx context.Context, c *Call, store any, begin func(context.Context) (Tx, operation, error)) (Outcome, error) {
	if e.policy.Effects != EffectsInTx {
		return Outcome{}, fmt.Errorf("%w: DoTx commits effects and answer together, and the engine's effects are %s; give DoTx an engine.With(Policy{Effects: EffectsInTx}) if all effects are in the store's database, otherwise use Do",
			ErrPolicy, e.policy.Effects)
	}
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return Outcome{}, fmt.Errorf("begin: %w", err)
	}
	b := e.newBegin(ctx, c)
	defer b.done()
	b.trace(0, "")
	t := txCall{b: b, e: e, store: store, begin: begin}
	defer func() { _ = t.rollback() }() // it is open only after an error or a panic, which the caller gets
	out, err := t.run()
	b.endRefused(err)
	return out, err
}

// txCall is the state of one call of DoTx.
type txCall struct {
	b     *begin
	e     *Engine
	store any // that begins the transactions
	begin func(context.Context) (Tx, operation, error)

	tx     Tx                // the transaction that is open, if any
	op     operation         // runs in it
	ctx    *executionContext // of both; its execution is nil, since phases cannot run in one transaction
	began  time.Time         // when the operation began
	undone error             // set after a rollback: the call does not run the operation again
}

// actCreate: the key is free and the call's transaction holds it.
const actCreate = actAbandon + 1

// errAgain: the operation was rolled back, and the record of another call decides.
var errAgain = errors.New("decide again")

func (t *txCall) run() (Outcome, error) {
	e, b := t.e, t.b
	if !e.breaker.allow(e.clock) {
		return Outcome{}, b.unavailable(errors.New("it has failed repeatedly; the circuit breaker is open"))
	}
	if err := b.newOwner(); err != nil {
		return Outcome{}, b.unavailable(err)
	}
	var got Record
	for range maxSteps {
		v, err := t.reserveOrWait(&got)
		if err != nil {
			return Outcome{}, err
		}
		waits := is(v.why, ErrInFlight)
		switch {
		case v.do == actReplay:
			_ = t.rollback() // it has written nothing
			e.observe(EventReplayed, &got, 0, nil)
			b.endTrace(EventReplayed, &got, nil)
			return outcomeOf(&got, true).own(), nil
		case (waits || is(v.why, ErrUnknown)) && t.tx != nil && e.orphans.take(got.Owner):
			if out, err := t.adopt(&got); !is(err, errAgain) {
				return out, err
			}
		case v.do == actRefuse:
			_ = t.rollback() // it has written nothing
			if !waits || !isAnswer(b.wait(&got)) {
				return Outcome{}, e.refuse(v.why, &got)
			}
		case v.do == actCreate, v.do.claims():
			if out, err := t.execute(v.do, &got); !is(err, errAgain) {
				return out, err
			}
		default:
			_ = t.rollback() // it has written nothing, and the swap would wait for it
			next := transition(v.do, &b.c, &e.policy, got, Owner{})
			if err := b.send(opSwap, &next, &got); err == nil {
				e.observe(EventLapsed, &got, 0, nil)
			} else if !isAnswer(err) {
				return Outcome{}, b.unavailable(err)
			}
		}
	}
	return Outcome{}, e.refuse(ErrInFlight, &got)
}

// reserveOrWait takes the key in a new transaction and decides about the record that is
// stored. When another transaction holds the key, the committed record is used if the
// decision needs no write, so that concurrent replays do not block each other.
// Otherwise the call waits, if the policy says so.
func (t *txCall) reserveOrWait(got *Record) (decision, error) {
	e, b := t.e, t.b
	for {
		err := t.reserve(got)
		if is(err, ErrBusy) {
			_ = t.rollback() // it has written nothing
			err = b.send(opLoad, &Write{Record: Record{Ref: b.c.Ref}}, got)
		}
		switch held := t.tx != nil; {
		case err == nil:
			e.confirmExpiry(got)
			if v := decide(&b.c, &e.policy, got); held || v.do == actReplay || v.do == actRefuse {
				return v, nil
			}
		case is(err, ErrNotFound) && held:
			return decision{do: actCreate}, nil
		case is(err, ErrNotFound):
		case is(err, ErrUnreadable):
			return decision{}, e.refuse(err, got)
		default:
			return decision{}, b.unavailable(err)
		}
		if b.pause() != nil {
			return decision{}, e.refuse(ErrInFlight, &Record{Ref: b.c.Ref, Operation: b.c.Operation})
		}
	}
}

// reserve takes the key in a new transaction, and tries again while the store does not
// answer.
func (t *txCall) reserve(got *Record) error {
	e := t.e
	for try := 1; ; try++ {
		err := t.tryReserve(got, take)
		if isAnswer(err) {
			e.breaker.note(e.clock, noteAnswered)
			return err
		}
		if try == storeTries || e.clock.Sleep(t.b.storeCtx, time.Duration(try)*10*time.Millisecond) != nil {
			e.breaker.note(e.clock, noteReadFailed)
			return err
		}
	}
}

// tryReserve begins a transaction and takes the key in it. The transaction's context
// lasts as long as an operation may run, because some drivers roll back when the
// context ends. Until the key is taken, the store's timeout ends it.
//
// How is what it takes the key by: take suffices to run an operation, since storing its
// answer is refused if another one was committed meanwhile. Reserve is for what must
// know how an earlier transaction ended.
func (t *txCall) tryReserve(got *Record, how func(context.Context, Tx, Ref) (Record, error)) error {
	e, b := t.e, t.b
	now := e.clock.Now()
	life := new(executionContext)
	life.init(b.ctx, e.clock, e.policy.MaxRun)
	life.deadline = now.Add(e.policy.MaxRun)
	until, _ := b.storeCtx.Deadline()
	limit := e.clock.AfterFunc(until.Sub(now), func() { life.end(context.DeadlineExceeded) })
	tx, op, err := t.begin(life)
	t.ctx = life
	if err == nil {
		t.tx, t.op = tx, op
		failpoint.Hit("dotx.begun")
		*got, err = how(life, tx, b.c.Ref)
		failpoint.Hit("dotx.reserved")
	}
	if !limit.Stop() && isAnswer(err) {
		err = context.DeadlineExceeded // the timeout has already ended the transaction's context
	}
	if !isAnswer(err) {
		err = errors.Join(fmt.Errorf("reserve in transaction: %w", err), t.rollback())
		e.observe(EventStoreError, &Record{Ref: b.c.Ref, Operation: b.c.Operation}, 0, err)
	}
	return err
}

// take takes a key in a transaction, by Take if the store has it.
func take(ctx context.Context, tx Tx, ref Ref) (Record, error) {
	if t, ok := tx.(Taker); ok {
		return t.Take(ctx, ref)
	}
	return tx.Reserve(ctx, ref)
}

// reserve takes a key in a transaction, and returns what is stored from then on.
func reserve(ctx context.Context, tx Tx, ref Ref) (Record, error) { return tx.Reserve(ctx, ref) }

// rollback rolls back the transaction that is open, if any.
func (t *txCall) rollback() error {
	tx, life := t.tx, t.ctx
	t.tx, t.ctx = nil, nil
	if life != nil {
		defer life.end(context.Canceled)
	}
	if tx == nil {
		return nil
	}
	step := t.e.newStoreContext(t.b.ctx)
	defer step.done()
	if err := tx.Rollback(step); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// adopt runs the operation under a reservation that this process sent and never
// started, because the store's reply was lost.
func (t *txCall) adopt(got *Record) (out Outcome, err error) {
	orphan, adopted := got.Owner, false
	defer func() {
		if !adopted {
			t.e.orphans.add(orphan) // the reservation may still be stored
		}
	}()
	out, err = t.execute(actResume, got)
	adopted = err == nil
	return out, err
}

// execute runs the operation in the transaction that holds the key, and commits it with
// its answer.
func (t *txCall) execute(do action, got *Record) (Outcome, error) {
	e, b := t.e, t.b
	why := t.undone
	if gone := b.ctx.Err(); why == nil && gone != nil {
		why = fmt.Errorf("begin: %w", gone)
	}
	if why != nil {
		_ = t.rollback() // it has written nothing
		return Outcome{}, why
	}
	next := fresh(&b.c, &e.policy, b.owner)
	if do != actCreate {
		next = transition(do, &b.c, &e.policy, *got, b.owner)
	}
	kind := EventReserved
	if next.Attempt > 1 {
		kind = EventRetried
	}
	e.observe(kind, &next.Record, 0, nil)
	next.setTrace(b.traceparent)
	b.endTrace(kind, &next.Record, nil)
	t.began = e.clock.Now()
	result, err := t.call(&next)
	if err != nil {
		undone := t.rollback()
		if is(undone, ErrTxDone) {
			return t.quarantine(&next, errors.Join(err, undone))
		}
		err = errors.Join(err, undone)
		t.released(&next.Record, err)
		return Outcome{}, err
	}
	failpoint.Hit("dotx.ran")
	next.State, next.Result, next.Term, next.Relaxed = StateCompleted, &result, next.Retain, false
	return t.tracedCommit(&next)
}

// errNoReturn is the error of a function that did not return.
var errNoReturn = errors.New("the operation panicked or ended its goroutine")

// call runs the operation. If it panics or ends its goroutine, the deferred rollback of
// DoTx still runs.
func (t *txCall) call(next *Write) (Result, error) {
	back := false
	ctx := t.traceRun(&next.Record)
	defer func() {
		if back {
			return
		}
		t.endRun(ctx, &next.Record, errNoReturn)
		undone := t.rollback()
		if is(undone, ErrTxDone) {
			_, _ = t.quarantine(next, errors.Join(errNoReturn, undone)) // the caller gets the panic
			return
		}
		t.released(&next.Record, errors.Join(errNoReturn, undone))
	}()
	result, err := t.op(ctx)
	back = true
	t.ctx.stopTimer() // what came back in time is committed
	if t.ctx.Err() != nil {
		err = errors.Join(ErrTooLong, err)
	}
	t.endRun(ctx, &next.Record, err)
	return result, err
}

// released reports to the observer that the operation was rolled back.
func (t *txCall) released(next *Record, why error) {
	r := *next
	r.State = StateRetryable
	t.e.observe(EventReleased, &r, t.took(), why)
}

func (t *txCall) took() time.Duration { return t.e.clock.Now().Sub(t.began) }
