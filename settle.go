package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// A settlement is how an execution ends.
type settlement struct {
	state  State
	result *Result
	why    error
}

// apply returns r as the settlement leaves it. Its checkpoint is kept as it is
// stored, not written again.
func (s *settlement) apply(r Record, retain time.Duration, p *Policy) Record {
	r.State, r.Result, r.Reason, r.Checkpoint = s.state, s.result, reasonOf(s.why), Checkpoint{}
	if retain > 0 {
		r.Retain = retain
	}
	r.Term = r.Retain
	switch {
	case s.state == StateUnknown:
		r.Term = p.Reconcile
	case s.state == StateRetryable && r.Request != nil: // its client was told that it is under way: a worker takes it up again
		r.State, r.Term = StateAccepted, p.Patience
	}
	return r
}

// met reports whether the stored record is already what the settlement asks
// for: its own write, whose reply was lost.
func (s *settlement) storedAlready(r *Record) bool {
	again := s.state == StateRetryable && r.State == StateAccepted
	return again || r.State == s.state && (s.state != StateCompleted || r.Result.Equal(s.result))
}

const (
	firstPause = 10 * time.Millisecond
	longPause  = 2 * time.Second
)

// settle ends the execution by one swap. While the store does not answer it
// tries again until SettleTimeout, and then hands the answer to the background.
func (x *Execution) settle(ctx context.Context, s settlement) error {
	if err := x.checkNoOpenTx(); err != nil {
		return err
	}
	x.enterGate(ctx)
	defer x.leaveGate()
	if x.stage != stageRunning && x.stage != stageSetAside {
		return x.closedReason()
	}
	x.stopBeat()
	failpoint.Hit("settle.beat_stopped")
	done, err := x.trySettle(ctx, &s)
	if done {
		return err
	}
	until := x.e.clock.Now().Add(x.e.settleTimeout)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		if now := x.e.clock.Now(); !now.Add(pause).Before(until) {
			return x.settleInBackground(ctx, s, now, err)
		}
		_ = x.e.clock.Sleep(context.WithoutCancel(ctx), pause)
		if done, err = x.trySettle(ctx, &s); done {
			return err
		}
	}
}

// trySettle offers the settlement to the store once. It reports whether the
// matter is decided.
func (x *Execution) trySettle(ctx context.Context, s *settlement) (done bool, err error) {
	x.mu.Lock()
	r := s.apply(x.current(), x.retain, &x.e.policy)
	x.mu.Unlock()
	got, err := x.swap(ctx, r, s)
	switch {
	case err == nil:
		failpoint.Hit("settle.confirmed")
		x.ended(&got)
		return true, nil
	case errors.Is(err, ErrSettled), errors.Is(err, ErrLost):
		return true, err
	default:
		return false, err
	}
}

// swap offers r to the store until it is clear what became of the record: r is
// stored; or [ErrSettled], the transaction of a CompleteTx has committed,
// whatever its caller was told; or [ErrLost]; or an error of the store's. An
// owner that meets its own attempt at another revision, because the reply to a
// beat was lost or a sweeper gave it up too early, adopts it and goes on.
// S, if not nil, is what r stands for: a record that is so already is r stored.
func (x *Execution) swap(ctx context.Context, r Record, s *settlement) (Record, error) {
	step := x.e.newStoreContext(ctx)
	defer step.done()
	return x.swapWithin(step, r, s)
}

// swapIn is swap in the context of a step.
func (x *Execution) swapWithin(step *detachedContext, r Record, s *settlement) (Record, error) {
	e := x.e
	pause := firstTick
	for range maxSteps {
		got, err := e.store.Swap(step, r)
		for is(err, ErrBusy) && e.clock.Sleep(step, pause) == nil {
			// A transaction has the record: most likely our own, on its way to the end.
			pause = min(pause*2, longTick)
			got, err = e.store.Swap(step, r)
		}
		switch mine := got.Owner == x.owner && got.Attempt == x.attempt; {
		case err == nil:
			return got, nil
		case is(err, ErrConflict) && mine && s != nil && s.storedAlready(&got):
			return got, nil
		case is(err, ErrConflict) && mine && x.inTx != nil && got.State == StateCompleted && got.Result.Equal(x.inTx):
			x.ended(&got)
			return got, ErrSettled
		case is(err, ErrConflict) && got.Owner == x.handedTo && !x.handedTo.IsZero():
			x.ended(&got) // its transaction has committed, whatever its caller was told
			return got, ErrSettled
		case is(err, ErrConflict) && mine && (got.State == StateInProgress || got.State == StateUnknown):
			r.Revision, r.Inquiry = got.Revision, got.Inquiry
			r.Inquiry.Dead = false                                // its owner is back
			if r.ProviderRef == "" && got.State == StateUnknown { // somebody has found it out
				r.ProviderRef = got.ProviderRef
			}
		case is(err, ErrConflict), is(err, ErrNotFound):
			return got, x.lose(&got, err)
		default:
			e.observe(EventStoreError, &x.rec, x.took(), err)
			return got, err
		}
	}
	return Record{}, ErrConflict
}

// ended notes that the store has confirmed how the execution ended.
func (x *Execution) ended(got *Record) {
	e := x.e
	x.store(got, stageSettled)
	failpoint.Hit("settle.ended")
	x.ctx.stopTimer()
	kind := EventReleased
	switch got.State {
	case StateCompleted:
		kind = EventCompleted
		e.durations.note(got.Operation, x.took)
	case StateUnknown:
		kind = EventQuarantined
	case StateInProgress, StateAccepted: // a message's now, or a worker's again
		kind = EventAccepted
	default: // Retryable
	}
	e.waits.notify(got, e.clock)
	if e.observer != nil {
		e.observe(kind, got, x.took(), nil)
	}
}

// lose notes that the record is not this attempt's any more.
func (x *Execution) lose(got *Record, err error) error {
	if is(err, ErrNotFound) {
		err = fmt.Errorf("%w: it is no longer stored", ErrLost)
	} else {
		err = fmt.Errorf("%w: it is %s, attempt %d", ErrLost, got.State, got.Attempt)
	}
	x.mu.Lock()
	x.stage = stageLost
	x.mu.Unlock()
	x.ctx.end(err)
	x.e.observe(EventLost, &x.rec, x.took(), err)
	return err
}

// offer goes on offering the settlement in the background, for as long as an
// attempt may run. Who crashes before it is taken leaves a record that lapses.
func (x *Execution) settleInBackground(ctx context.Context, s settlement, now time.Time, cause error) error {
	e := x.e
	x.mu.Lock()
	x.stage = stageOffering
	x.mu.Unlock()
	e.offers.pending.Add(1)
	e.observe(EventUnsettled, &x.rec, x.took(), cause)
	until := now.Add(e.policy.MaxRun)
	ctx = context.WithoutCancel(ctx)
	var again func(time.Duration)
	again = func(pause time.Duration) {
		e.clock.AfterFunc(pause, func() {
			x.enterGate(ctx)
			defer x.leaveGate()
			done, err := x.trySettle(ctx, &s)
			switch {
			case done:
			case e.clock.Now().After(until):
				e.observe(EventForgone, &x.rec, x.took(), err)
				x.ctx.stopTimer()
			default:
				again(min(pause*2, longPause))
				return
			}
			e.offers.pending.Add(-1)
		})
	}
	again(firstPause)
	return fmt.Errorf("%w: %w", ErrUnsettled, cause)
}

// CompleteTx stores the answer in the caller's transaction, so that effects and
// answer commit together or not at all. It must be the last step before the
// commit. If the record is not this attempt's any more the transaction is rolled
// back, so that a caller who ignores the error cannot commit a second effect; and
// so it is if steps are stored that this attempt has not passed ([ErrPhases]).
//
// The heartbeat rests while the transaction is open. After a rollback the
// execution is open as before: complete it in another transaction, or settle it
// otherwise. [Execution.Outcome] finds out which it was.
func (x *Execution) CompleteTx(ctx context.Context, tx Tx, r Result) error {
	if err := x.checkNoOpenTx(); err != nil {
		return errors.Join(err, rollback(ctx, tx))
	}
	x.enterGateTx(ctx)
	defer x.leaveGate()
	if x.stage != stageRunning {
		return errors.Join(x.closedReason(), rollback(ctx, tx))
	}
	if err := x.checkAllStepsPassed(); err != nil {
		return errors.Join(err, rollback(ctx, tx))
	}
	x.stopBeat()
	s := settlement{state: StateCompleted, result: &r}
	x.mu.Lock()
	x.fenced = true
	next := s.apply(x.current(), x.retain, &x.e.policy)
	x.mu.Unlock()
	got, err := tx.Swap(ctx, next)
	switch {
	case err == nil:
		failpoint.Hit("completetx.swapped")
		x.prepare(&r)
		x.scheduleBeat(x.e.clock.Now()) // the next beat asks whether the transaction has ended
		return nil
	case is(err, ErrConflict) && got.Owner == x.owner && x.inTx != nil && got.State == StateCompleted && got.Result.Equal(x.inTx):
		x.ended(&got) // the transaction before this one had committed
		err = ErrSettled
	case is(err, ErrConflict) && got.Owner == x.owner && (got.State == StateInProgress || got.State == StateUnknown):
		x.store(&got, stageRunning) // a beat whose reply was lost; the next transaction will do
		x.scheduleBeat(x.e.clock.Now())
	case is(err, ErrConflict), is(err, ErrNotFound):
		err = x.lose(&got, err)
	default:
		x.scheduleBeat(x.e.clock.Now())
	}
	return errors.Join(fmt.Errorf("complete in transaction: %w", err), rollback(ctx, tx))
}

// rollback ends a transaction that must not commit, also when its caller's
// context has ended.
func rollback(ctx context.Context, tx Tx) error {
	if err := tx.Rollback(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}
