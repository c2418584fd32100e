package retrysafe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// A message that commits with the operation's own writes may give the answer later.
// From that commit on the message owns the key: the operation does not run again,
// retries get [ErrAccepted], and the worker that ends the message settles the key in
// the same step.

// ofMessage reports whether the owner is a message. Eight zero bytes say so; no
// attempt draws them.
func (o Owner) ofMessage() bool { return [8]byte(o[:8]) == [8]byte{} && !o.IsZero() }

// HandOver hands the operation's key to a message, in the caller's transaction, and
// returns the record for the message to carry. It must be the last step on the key
// before the commit; the message is enqueued in the same transaction. If the record
// no longer belongs to this attempt, the transaction is rolled back.
//
// Term is how long the message may take, retries included. A message that has not
// ended by then leaves the outcome Unknown, whatever the policy says of lapsed
// attempts: it may have been delivered.
//
// The message is delivered at least once, so the effects must be Keyed, or InTx with
// a receiver that honours the message's key.
func (x *Execution) HandOver(ctx context.Context, tx Tx, term time.Duration) (Record, error) {
	err := x.checkNoOpenTx()
	switch {
	case err != nil:
	case !x.e.policy.Effects.Repeatable():
		err = fmt.Errorf("%w: a message is delivered at least once, which is not allowed with unprotected effects; give it a key that its receiver honours, and make the effects EffectsKeyed", ErrPolicy)
	case term <= 0:
		err = errors.New("retrysafe: hand over: the term is not positive")
	}
	if err != nil {
		return Record{}, errors.Join(err, rollback(ctx, tx))
	}
	x.enterGateTx(ctx)
	defer x.leaveGate()
	if x.stage != stageRunning {
		return Record{}, errors.Join(x.closedReason(), rollback(ctx, tx))
	}
	if err := x.checkAllStepsPassed(); err != nil {
		return Record{}, errors.Join(err, rollback(ctx, tx))
	}
	owner, err := x.e.messageOwner()
	if err != nil {
		return Record{}, errors.Join(err, rollback(ctx, tx))
	}
	x.stopBeat()
	x.mu.Lock()
	x.fenced = true
	next := x.update()
	if x.retain > 0 {
		next.Retain = x.retain
	}
	x.mu.Unlock()
	next.State, next.Result, next.Lapse = StateInProgress, nil, LapseQuarantine
	next.Owner, next.Overwrite, next.Term = owner, true, term
	got, err := tx.Swap(ctx, next)
	if !is(err, ErrTxDone) {
		x.setJoined() // a transaction that refuses a step cannot commit either
	}
	switch {
	case err == nil:
		failpoint.Hit("handover.swapped")
		x.mu.Lock()
		x.handedTo = owner
		x.mu.Unlock()
		x.endRun(StateAccepted, nil)
		x.scheduleBeat(x.e.clock.Now()) // the next heartbeat finds out whether the transaction has committed
		return got, nil
	case is(err, ErrConflict) && got.Owner == x.owner && got.continues():
		x.store(&got, stageRunning) // the reply to a heartbeat was lost; the next transaction succeeds
		x.scheduleBeat(x.e.clock.Now())
	case is(err, ErrNotFound) && x.isStored(ctx):
		err = errForeignTx
		x.scheduleBeat(x.e.clock.Now())
	case is(err, ErrConflict), is(err, ErrNotFound):
		err = x.lose(&got, err)
	case is(err, ErrTxDone):
		x.setTxDone()
		x.scheduleBeat(x.e.clock.Now())
		return Record{}, fmt.Errorf("hand over in transaction: %w; HandOver comes before the commit", err)
	default:
		x.scheduleBeat(x.e.clock.Now())
	}
	return Record{}, errors.Join(fmt.Errorf("hand over in transaction: %w", err), rollback(ctx, tx))
}

// HandedOver reports whether the key is a message's: the transaction of a
// [Execution.HandOver] has committed, as far as [Execution.Outcome] has found out.
func (x *Execution) HandedOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stage == stageSettled && x.rec.Owner.ofMessage()
}

// messageOwner draws the nonce of a message.
func (s *shared) messageOwner() (o Owner, err error) {
	source := s.rand
	if source == nil {
		source = rand.Reader
	}
	if _, err := io.ReadFull(source, o[8:]); err != nil {
		return o, fmt.Errorf("draw owner: %w", err)
	}
	return o, nil
}
