package retrysafe

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Accept stores the call for a worker instead of running it, with the request that the
// worker will get. Exactly one result is not nil: the outcome of an earlier attempt, or
// an error. A [*RefusedError] with [ErrAccepted] says that the call is stored, by this
// call or an earlier one; the other errors are those of [Engine.Begin].
//
// Work that no worker takes within [Policy.Patience] is given up.
func (e *Engine) Accept(ctx context.Context, c Call, request []byte) (*Outcome, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	b := e.newBegin(ctx, &c)
	defer b.done()
	b.accept, b.request = true, request
	b.trace(0, "")
	_, out, err := b.run()
	b.endRefused(err)
	return out, err
}

// queue turns the write of a new attempt into one that stores the work for a worker.
// The attempt is not counted: the worker's will be.
func (b *begin) queue(w *Write) {
	w.State, w.Term, w.Relaxed = StateAccepted, b.e.policy.Patience, false
	w.Attempt--
	if w.Request == nil {
		w.Request = b.request
	}
	if w.Request == nil {
		w.Request = []byte{}
	}
}

// TakeUp asks for the right to run accepted work; r is its record. [ErrLost]: another
// worker runs it, or it was settled or given up. The execution must be settled, like
// one of [Engine.Begin].
func (e *Engine) TakeUp(ctx context.Context, r Record) (*Execution, error) {
	if r.State != StateAccepted {
		return nil, fmt.Errorf("take up: %w: it is %s", ErrLost, r.State)
	}
	if !r.Readable() {
		return nil, fmt.Errorf("take up: %w", ErrUnreadable)
	}
	c := Call{Ref: r.Ref, Operation: r.Operation, Fingerprint: r.Fingerprint, Retention: r.Retain}
	b := e.newBegin(ctx, &c)
	defer b.done()
	if err := b.newOwner(); err != nil {
		return nil, fmt.Errorf("take up: %w", err)
	}
	policy, err := b.policyOf()
	if err != nil {
		return nil, fmt.Errorf("take up: %w", err)
	}
	next := transition(retryAction(&r), &c, policy, r, b.owner)
	next.Relaxed = false
	b.trace(next.Attempt, r.Trace())
	next.setTrace(b.traceparent)
	failpoint.Hit("takeup.claiming")
	var got Record
	err = b.send(opSwap, &next, &got)
	switch {
	case got.Owner == b.owner && got.State == StateInProgress && (err == nil || is(err, ErrConflict)):
		x, _, err := b.start(&got)
		return x, err
	case err == nil, is(err, ErrConflict), is(err, ErrNotFound), is(err, ErrBusy):
		return nil, fmt.Errorf("take up: %w", errors.Join(ErrLost, err))
	default: // the swap may have been applied; the operation never started, so a retry may claim it
		e.orphans.add(b.owner)
		return nil, fmt.Errorf("take up: %w", err)
	}
}
