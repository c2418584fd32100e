package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Complete stores the answer. When it returns nil the answer is durable and may
// be shown; every retry gets it from now on.
//
// On [ErrUnsettled] the engine goes on offering the answer; on [ErrLost] the
// record says otherwise; on [ErrPhases] steps are stored that this attempt has not
// passed, and it is settled as [Execution.Fail] does. In none of these cases may
// this answer be shown.
func (x *Execution) Complete(ctx context.Context, r Result) error {
	if err := x.checkAllStepsPassed(); err != nil {
		return x.refuseAnswer(ctx, err)
	}
	err := x.settle(ctx, settlement{state: StateCompleted, result: &r})
	if err == nil && x.e.policy.Effects == EffectsInTx && r.Status < 300 {
		x.e.observe(EventUnfenced, &x.rec, x.took(), nil)
	}
	return err
}

// Release states that the operation provably did not happen: the next call with
// this key runs. Why is kept for operators. It is no proof of an unprotected
// [Effect] whose own function could not tell: that is quarantined.
func (x *Execution) Release(ctx context.Context, why error) error {
	return x.settle(ctx, settlement{state: x.proven(StateRetryable), why: why})
}

// Quarantine states that the operation may have happened: no retry runs it
// until a reconciler or an operator has found out. Why is kept for operators.
func (x *Execution) Quarantine(ctx context.Context, why error) error {
	return x.settle(ctx, settlement{state: StateUnknown, why: why})
}

// Fail settles an attempt that failed with err by what is proven: marked by
// [NotExecuted] it is released; otherwise its effect mode decides between
// Retryable and Unknown.
func (x *Execution) Fail(ctx context.Context, err error) error {
	state := x.e.policy.Effects.proves()
	if IsNotExecuted(err) {
		state = x.proven(StateRetryable)
	}
	return x.settle(ctx, settlement{state: state, why: err})
}

// proven returns the state that the attempt may be said to be in: not the given one
// if an unprotected effect may have happened.
func (x *Execution) proven(s State) State {
	if x.uncertain() && x.e.policy.Effects == EffectsUnprotected {
		return StateUnknown
	}
	return s
}

// A settlement is how an execution ends.
type settlement struct {
	state  State
	result *Result
	why    error
}

// apply makes w the write of the settlement. The checkpoint stays as it is stored.
func (s *settlement) apply(w *Write, retain time.Duration, p *Policy) {
	w.State, w.Result, w.Reason = s.state, s.result, reasonOf(s.why)
	if retain > 0 {
		w.Retain = retain
	}
	w.Term = w.Retain
	switch {
	case s.state == StateUnknown:
		w.Term = p.Reconcile
	case s.state == StateRetryable && w.Request != nil: // its client was told that it is under way: a worker runs it again
		w.State, w.Term = StateAccepted, p.Patience
	}
}

// storedAlready reports whether the stored record is already what the settlement asks
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
	w := x.update()
	s.apply(&w, x.retain, &x.e.policy)
	x.mu.Unlock()
	got, err := x.swap(ctx, w, s)
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

// swap offers w to the store until it is clear what became of the record: w is
// stored; or [ErrSettled], the transaction of a CompleteTx has committed,
// whatever its caller was told; or [ErrLost]; or an error of the store's. An
// owner that meets its own attempt at another revision, because the reply to a
// beat was lost or a sweeper gave it up too early, adopts it and goes on.
// S, if not nil, is what w stands for: a record that is so already is w stored.
func (x *Execution) swap(ctx context.Context, w Write, s *settlement) (Record, error) {
	step := x.e.newStoreContext(ctx)
	defer step.done()
	return x.swapWithin(step, w, s)
}

// swapWithin is swap in the context of a step.
func (x *Execution) swapWithin(step *detachedContext, w Write, s *settlement) (Record, error) {
	e := x.e
	pause := firstTick
	for range maxSteps {
		got, err := e.store.Swap(step, w)
		for is(err, ErrBusy) && e.clock.Sleep(step, pause) == nil {
			// A transaction has the record: most likely our own, on its way to the end.
			pause = min(pause*2, longTick)
			got, err = e.store.Swap(step, w)
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
			w.Expect.Revision, w.Inquiry = got.Revision, got.Inquiry
			w.Inquiry.Dead = false                                // its owner is back
			if w.ProviderRef == "" && got.State == StateUnknown { // a resolver has found it out
				w.ProviderRef = got.ProviderRef
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

// settleInBackground goes on offering the settlement in the background, for as long as an
// attempt may run. If the process crashes before the store takes it, the record lapses.
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

// refuseAnswer settles an attempt that cannot have an answer by what is proven.
func (x *Execution) refuseAnswer(ctx context.Context, why error) error {
	if err := x.Fail(ctx, why); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// offers counts answers that are offered to the store in the background.
type offers struct{ pending atomic.Int64 }

// Drain waits until every answer that was not confirmed in time is stored or
// given up, or ctx is done. A server calls it after its last request, so that
// nothing stays ambiguous that could have been stored.
func (e *Engine) Drain(ctx context.Context) error {
	for e.offers.pending.Load() > 0 {
		if err := e.clock.Sleep(ctx, firstTick); err != nil {
			return fmt.Errorf("drain: %d answers are not durable yet: %w", e.offers.pending.Load(), err)
		}
	}
	return nil
}
