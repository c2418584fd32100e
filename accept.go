package retrysafe

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Accept stores the call for a worker instead of running it, with the request as
// the worker is to have it. Exactly one result is not nil: the outcome of an
// earlier attempt, or an error. A [*RefusedError] with [ErrAccepted] says that the
// call is stored, now or since an earlier one; the others mean what they mean for
// [Engine.Begin].
//
// Work that no worker takes up within [Policy.Patience] is given up.
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
	_, out, err := b.run()
	return out, err
}

// queue turns the write that would begin an attempt into one that stores the work for
// a worker. Its attempt is yet to come.
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

// TakeUp asks for the right to run accepted work, which r is the record of.
// [ErrLost]: another worker has it, or it was settled or given up. The execution
// must be settled, as that of [Engine.Begin].
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
	next := transition(retryAction(&r), &c, &e.policy, r, b.owner)
	next.Relaxed = false
	failpoint.Hit("takeup.claiming")
	var got Record
	err := b.send(opSwap, &next, &got)
	switch {
	case got.Owner == b.owner && got.State == StateInProgress && (err == nil || is(err, ErrConflict)):
		x, _, err := b.start(&got)
		return x, err
	case err == nil, is(err, ErrConflict), is(err, ErrNotFound), is(err, ErrBusy):
		return nil, fmt.Errorf("take up: %w", errors.Join(ErrLost, err))
	default: // should it have been applied, the next call may have it: it never started
		e.orphans.add(b.owner)
		return nil, fmt.Errorf("take up: %w", err)
	}
}
