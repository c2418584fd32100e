package retrysafe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/pool"
)

// Begin asks for the right to run the call. Exactly one of its results is not nil: an
// execution that must be settled, the outcome of an earlier attempt, or an error. A
// [*RefusedError] says why the call does not run; nothing runs unless the store has
// confirmed the reservation.
//
// The context of the store's steps does not end with ctx, so a client that hangs up
// leaves no reservation behind. If ctx is done before the operation starts, the
// reservation is released.
func (e *Engine) Begin(ctx context.Context, c Call) (*Execution, *Outcome, error) {
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	b := e.newBegin(ctx, &c)
	defer b.done()
	b.trace(0, "")
	x, out, err := b.run()
	b.endRefused(err)
	return x, out, err
}

// begin is the state of one call of Begin, Accept, Peek or DoTx. Objects are pooled:
// done resets one, and nothing refers to it afterwards.
type begin struct {
	e   *Engine
	ctx context.Context
	c   Call

	policy     *Policy // the engine's, or its cautious one; see policyOf
	accept     bool    // Accept: the call is stored for a worker, with request
	request    []byte
	owner      Owner            // the owner of the attempt that would begin
	storeCtx   *detachedContext // the context of the store's steps
	waitUntil  time.Time        // set once the call waits for another attempt
	paused     time.Duration    // how long the last pause was
	unanswered bool             // the store did not answer a try of the last step
	orphaned   bool             // the owner was added to the orphans

	traced      bool   // the span of the call is open; see [begin.trace]
	traceparent string // of that span, if it is recorded
}

var begins pool.Of[begin]

func (e *Engine) newBegin(ctx context.Context, c *Call) *begin {
	b := begins.Get()
	b.e, b.ctx, b.c = e, ctx, *c
	b.storeCtx = e.newStoreContext(ctx)
	return b
}

// done resets b and returns it to the pool.
func (b *begin) done() {
	b.endRefused(nil) // it is open only if the call has panicked
	b.storeCtx.done()
	*b = begin{}
	begins.Put(b)
}

// storeTries is how often one step is sent while the store does not say whether it was
// applied. Sending a step again is safe: Create and Swap recognise the owner that the
// first try has stored.
const storeTries = 3

func (b *begin) run() (*Execution, *Outcome, error) {
	e := b.e
	if !e.breaker.allow(e.clock) {
		return nil, nil, b.unavailable(errors.New("it has failed repeatedly; the circuit breaker is open"))
	}
	if err := b.newOwner(); err != nil {
		return nil, nil, b.unavailable(err)
	}
	var err error
	if b.policy, err = b.policyOf(); err != nil {
		return nil, nil, b.unavailable(err)
	}
	mine := fresh(&b.c, b.policy, b.owner)
	if b.accept {
		b.queue(&mine)
	}
	mine.setTrace(b.traceparent)
	var got Record
	err = b.create(&mine, &got)
	for range maxSteps {
		if err := b.ensureRecord(err, &mine, &got); err != nil {
			return nil, nil, err
		}
		if got.Owner == b.owner && got.State == StateInProgress && !got.Due() {
			return b.start(&got)
		}
		if b.accept && got.Owner == b.owner && got.State == StateAccepted {
			e.observe(EventAccepted, &got, 0, nil)
			b.endTrace(EventAccepted, &got, nil)
			return nil, nil, e.refuse(ErrAccepted, &got)
		}
		e.confirmExpiry(&got)
		switch v := decide(&b.c, b.policy, &got); {
		case v.do == actReplay:
			e.observe(EventReplayed, &got, 0, nil)
			b.endTrace(EventReplayed, &got, nil)
			out := outcomeOf(&got, true)
			return nil, &out, nil
		case is(v.why, ErrInFlight), is(v.why, ErrUnknown):
			if got.Owner == b.owner || e.orphans.take(got.Owner) {
				err = b.adopt(&mine, &got)
				break
			}
			if is(v.why, ErrUnknown) {
				return nil, nil, e.refuse(ErrUnknown, &got)
			}
			if err = b.wait(&got); !isAnswer(err) {
				return nil, nil, e.refuse(ErrInFlight, &got)
			}
		case v.do == actRefuse:
			return nil, nil, e.refuse(v.why, &got)
		case v.do.claims():
			err = b.claim(v.do, &mine, &got)
		default:
			next := transition(v.do, &b.c, b.policy, got, Owner{})
			if err = b.send(opSwap, &next, &got); err == nil {
				failpoint.Hit("begin.lapsed")
				e.observe(EventLapsed, &got, 0, nil)
			}
		}
	}
	return nil, nil, e.refuse(ErrInFlight, &got)
}

// ensureRecord returns nil once got is a record under the call's key: the one that the
// call created, or the one that was stored before. Err is the result of the last step.
// If the record has vanished, or a transaction holds the key, Create is sent again.
func (b *begin) ensureRecord(err error, mine *Write, got *Record) error {
	for {
		switch {
		case err == nil, is(err, ErrExists), is(err, ErrConflict):
			return nil
		case is(err, ErrNotFound): // the record was deleted meanwhile; create it
		case is(err, ErrBusy):
			if b.pause() != nil {
				return b.e.refuse(ErrInFlight, &Record{Ref: b.c.Ref, Operation: b.c.Operation})
			}
		case is(err, ErrUnreadable):
			return b.e.refuse(err, got)
		default:
			return b.unavailable(err)
		}
		err = b.create(mine, got)
	}
}

// claim swaps the next attempt of the call into got, the record that was found.
func (b *begin) claim(do action, mine *Write, got *Record) error {
	if err := b.newOwner(); err != nil {
		return err
	}
	failpoint.Hit("begin.claiming")
	mine.Owner = b.owner
	next := transition(do, &b.c, b.policy, *got, b.owner)
	if b.accept {
		b.queue(&next)
	}
	next.setTrace(b.traceparent)
	err := b.send(opSwap, &next, got)
	if b.unclear(err) {
		b.orphan()
	}
	return err
}

// orphan adds the owner of this call to the orphans. If its reservation is confirmed by a
// later step, start removes it again.
func (b *begin) orphan() {
	b.e.orphans.add(b.owner)
	b.orphaned = true
}

// unclear reports whether the last step, which ended with err, may have been applied.
// ErrBusy after an unanswered try is not clear either: that try may hold the key.
func (b *begin) unclear(err error) bool { return !isAnswer(err) || b.unanswered && is(err, ErrBusy) }

// adopt claims a reservation that this process sent and never started, because the
// store's reply was lost.
func (b *begin) adopt(mine *Write, got *Record) error {
	orphan := got.Owner
	err := b.claim(actResume, mine, got)
	if !isAnswer(err) || err != nil && got.Owner == orphan {
		b.e.orphans.add(orphan) // the reservation may still be stored
	}
	return err
}

// renewStoreContext replaces the context of the store's steps by one with a new
// deadline.
func (b *begin) renewStoreContext() {
	b.storeCtx.done()
	b.storeCtx = b.e.newStoreContext(b.ctx)
}

// newOwner draws the nonce of an attempt.
func (b *begin) newOwner() error { return b.owner.draw(b.e.rand) }

// draw draws a nonce from random, or from the system if that is nil.
func (o *Owner) draw(random io.Reader) error {
	if random == nil {
		_, _ = rand.Read(o[:]) // it never fails: without randomness the runtime crashes
		return nil
	}
	if _, err := io.ReadFull(random, o[:]); err != nil {
		return fmt.Errorf("draw owner: %w", err)
	}
	return nil
}

// create sends the reservation of the key. If the store does not confirm it, its owner
// becomes an orphan.
func (b *begin) create(w *Write, got *Record) error {
	err := b.send(opCreate, w, got)
	if b.unclear(err) {
		b.orphan()
	}
	return err
}

// The steps that [begin.send] sends.
const (
	opCreate = iota
	opSwap
	opLoad
)

// send sends one step to the store, and sends it again while the store does not answer.
// Records are large, so they are passed by pointer.
func (b *begin) send(op int, w *Write, got *Record) (err error) {
	e := b.e
	b.unanswered = false
	for try := 1; ; try++ {
		switch op {
		case opCreate:
			*got, err = e.store.Create(b.storeCtx, *w)
		case opSwap:
			*got, err = e.store.Swap(b.storeCtx, *w)
		default:
			*got, err = e.store.Load(b.storeCtx, w.Ref)
		}
		if isAnswer(err) {
			switch {
			case op != opLoad && err == nil:
				e.breaker.note(e.clock, noteWrote)
			case e.breaker.wantsWrite(e.clock):
				e.breaker.note(e.clock, b.tryWrite())
			default:
				e.breaker.note(e.clock, noteAnswered)
			}
			return err
		}
		b.unanswered = true
		e.observe(EventStoreError, &Record{Ref: b.c.Ref, Operation: b.c.Operation}, 0, err)
		if try == storeTries || e.clock.Sleep(b.storeCtx, time.Duration(try)*10*time.Millisecond) != nil {
			result := noteWriteFailed
			if op == opLoad {
				result = noteReadFailed
			}
			e.breaker.note(e.clock, result)
			return err
		}
	}
}

// triedRetain is how long the store keeps the record of [begin.tryWrite].
const triedRetain = time.Minute

// tryWrite finds out whether the store takes writes, by a small record of a system
// scope that no call refers to.
func (b *begin) tryWrite() healthNote {
	e := b.e
	var owner Owner
	if owner.draw(e.rand) != nil {
		return noteAnswered
	}
	_, err := e.store.Create(b.storeCtx, Write{
		Record: Record{
			Ref: Ref{Scope: SystemScope("breaker"), Key: hex.EncodeToString(owner[:])}, Operation: "try a write", Owner: owner,
			Attempt: 1, Version: RecordVersion, State: StateCompleted, Result: &Result{Status: 200},
			Effects: EffectsUnprotected, Lapse: LapseQuarantine, Retain: triedRetain,
		},
		Term: triedRetain,
	})
	switch {
	case err == nil:
		return noteWrote
	case isAnswer(err):
		return noteAnswered
	default:
		return noteWriteFailed
	}
}

// isAnswer reports whether err is an answer of the store, success included, rather than
// a failure to give one.
func isAnswer(err error) bool {
	return err == nil || is(err, ErrExists) || is(err, ErrConflict) || is(err, ErrNotFound) ||
		is(err, ErrBusy) || is(err, ErrFull) || is(err, ErrUnreadable)
}

// is is errors.Is with a shortcut for a bare sentinel, which is what stores mostly
// return.
func is(err, sentinel error) bool {
	return err == sentinel || errors.Is(err, sentinel) //nolint:errorlint // errors.Is is what it falls back on
}

// start turns a confirmed reservation into an execution.
func (b *begin) start(r *Record) (*Execution, *Outcome, error) {
	e := b.e
	if b.orphaned && r.Owner == b.owner { // the reservation was confirmed after all: no other call may take it over
		e.orphans.take(b.owner)
		b.orphaned = false
	}
	failpoint.Hit("begin.reserved")
	kind := EventReserved
	if r.Attempt > 1 {
		kind = EventRetried
	}
	e.observe(kind, r, 0, nil)
	b.endTrace(kind, r, nil)
	x := e.execution(e.traceRun(b.ctx, r), r)
	if err := b.ctx.Err(); err != nil { // the operation has not started: provably not executed
		return nil, nil, errors.Join(fmt.Errorf("begin: %w", err), x.Release(b.ctx, err))
	}
	x.scheduleBeat(x.began)
	return x, nil, nil
}

var refusedKinds = []struct {
	why  error
	kind EventKind
}{
	{ErrInFlight, EventInFlight}, {ErrAccepted, EventInFlight}, {ErrMismatch, EventMismatched},
	{ErrUnknown, EventUnknown}, {ErrGone, EventGone}, {ErrUnreadable, EventUnreadable},
}

// refuse returns the error that says why a call does not run and when to retry it.
func (e *Engine) refuse(why error, r *Record) error {
	for _, k := range refusedKinds {
		if errors.Is(why, k.why) {
			e.observe(k.kind, r, 0, nil)
		}
	}
	refused := &RefusedError{Err: why, Record: *r}
	switch {
	case errors.Is(why, ErrInFlight), errors.Is(why, ErrAccepted):
		refused.RetryAfter = e.durations.retryAfter(r.Operation, e.policy.Lease)
	case errors.Is(why, ErrUnknown):
		refused.RetryAfter = min(max(r.Deadline.Sub(r.ReadAt), time.Second), time.Minute)
	case errors.Is(why, ErrUnreadable):
		refused.RetryAfter = time.Minute
	}
	return refused
}

// unavailable returns the refusal of a call whose reservation the store did not
// confirm.
func (b *begin) unavailable(cause error) error {
	return &RefusedError{
		Err:        fmt.Errorf("%w: %w", ErrUnavailable, cause),
		RetryAfter: breakerRests,
		Record:     Record{Ref: b.c.Ref, Operation: b.c.Operation},
	}
}

// maxSteps bounds how many steps one call makes on a record that other calls keep
// changing.
const maxSteps = 16
