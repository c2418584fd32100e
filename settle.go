package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// Complete stores the answer. When it returns nil the answer is durable and may be
// shown; every retry gets it from now on.
//
// On [ErrUnsettled] the engine goes on offering the answer to the store. On [ErrLost]
// the record belongs to another attempt or is settled otherwise. On [ErrPhases] steps
// are stored that this attempt has not passed, and it is settled as [Execution.Fail]
// does. On [ErrNotInTx] the effects are declared [EffectsInTx] and no transaction took
// the answer, so effects and answer may not be the same: it is quarantined, unless its
// status says that it failed. In none of these cases may this answer be shown.
func (x *Execution) Complete(ctx context.Context, r Result) error {
	if err := x.checkAllStepsPassed(); err != nil {
		return x.refuseAnswer(ctx, err)
	}
	if r.Status < 400 && !x.mayCompletePlainly() {
		return x.refuseOutsideTx(ctx)
	}
	return x.settle(ctx, settlement{state: StateCompleted, result: &r})
}

// Release states that the operation provably did not happen: the next call with this
// key runs. Why is kept for operators. If the function of an unprotected [Effect] could
// not tell what the other side did, Release is no proof: the attempt is quarantined.
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
// Retryable and Unknown. With [EffectsInTx] a transaction that took the attempt's answer
// and did not commit is proof. If no transaction took it, a commit of the operation's
// own cannot be excluded, and the outcome is Unknown.
func (x *Execution) Fail(ctx context.Context, err error) error {
	state := x.e.policy.Effects.proves()
	switch {
	case IsNotExecuted(err):
		state = x.proven(StateRetryable)
	case x.outsideTx():
		state = StateUnknown
	}
	return x.settle(ctx, settlement{state: state, why: err})
}

// proven returns s, or Unknown if an unprotected effect of the attempt may have
// happened, or the operation ended a transaction itself.
func (x *Execution) proven(s State) State {
	if x.uncertain() && !x.e.policy.Effects.Repeatable() || x.endedTx() {
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

// apply turns w into the write of the settlement. The checkpoint stays as it is stored.
func (s *settlement) apply(w *Write, retain time.Duration, p *Policy) {
	w.State, w.Result, w.Reason = s.state, s.result, reasonOf(s.why)
	if retain > 0 {
		w.Retain = retain
	}
	w.Term = w.Retain
	switch {
	case s.state == StateUnknown:
		w.Term = p.Reconcile
	case s.state == StateRetryable && w.Request != nil: // its client got a 202: a worker runs it again
		w.State, w.Term = StateAccepted, p.Patience
	}
}

// storedAlready reports whether r is already what the settlement asks for. Then an
// earlier try was applied and its reply was lost.
func (s *settlement) storedAlready(r *Record) bool {
	again := s.state == StateRetryable && r.State == StateAccepted
	return again || r.State == s.state && !r.UnderReview() && (s.state != StateCompleted || r.Result.Equal(s.result))
}

const (
	firstPause = 10 * time.Millisecond
	longPause  = 2 * time.Second
)

// settle ends the execution, in a span of its own.
func (x *Execution) settle(ctx context.Context, s settlement) error {
	if err := x.checkNoOpenTx(); err != nil {
		return err
	}
	ctx = x.traceSettle(ctx, s.state, s.why)
	err := x.settleWithin(ctx, s)
	x.endSettle(ctx, s.state, err)
	return err
}

// settleWithin ends the execution by one swap. It tries again until SettleTimeout while
// the store does not answer, and then goes on in the background.
func (x *Execution) settleWithin(ctx context.Context, s settlement) error {
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

// trySettle sends the settlement to the store once. Done is false if the store did not
// answer.
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

// swap sends w to the store until it is known what became of the record. Nil: w is
// stored. [ErrSettled]: a transaction of CompleteTx or HandOver has committed, even if
// its caller got an error. [ErrLost]: the record is another attempt's, or gone. Any
// other error is the store's. If the record is this attempt's own at another revision,
// because the reply to a heartbeat was lost or a sweeper settled it as Unknown too
// early, swap continues from that revision. S is the settlement that w writes, or nil;
// if the record already is in that state, w is stored.
func (x *Execution) swap(ctx context.Context, w Write, s *settlement) (Record, error) {
	step := x.e.newStoreContext(ctx)
	defer step.done()
	return x.swapWithin(step, w, s)
}

// swapWithin is swap in the given context.
func (x *Execution) swapWithin(step *detachedContext, w Write, s *settlement) (Record, error) {
	e := x.e
	pause := firstTick
	for range maxSteps {
		got, err := e.store.Swap(step, w)
		for is(err, ErrBusy) && e.clock.Sleep(step, pause) == nil {
			// A transaction holds the record, most likely one of this execution that is
			// about to end.
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
			x.ended(&got) // the transaction of HandOver has committed, even if its caller got an error
			return got, ErrSettled
		case is(err, ErrConflict) && mine && got.continues():
			w.Expect.Revision, w.Inquiry = got.Revision, got.Inquiry.resumed() // its owner is alive
			if w.ProviderRef == "" && got.State == StateUnknown {              // a resolver may have found it
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

// continues reports whether the record's own attempt may go on from it: it is in flight,
// or was set aside as Unknown, and no retry was given an answer.
func (r *Record) continues() bool {
	return r.State == StateInProgress || r.State == StateUnknown && !r.UnderReview()
}

// ended records and reports how the execution ended, as the store has confirmed it.
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
		x.noteJoined(got)
	case StateUnknown:
		kind = EventQuarantined
	case StateInProgress, StateAccepted: // a message owns it now, or it waits for a worker again
		kind = EventAccepted
	default: // Retryable
	}
	e.waits.notify(got, e.clock)
	if e.observer != nil {
		e.observeIn(x.ctx.parent, kind, got, x.took(), nil)
	}
}

// lose records that the record no longer belongs to this attempt.
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
	x.e.observeIn(x.ctx.parent, EventLost, &x.rec, x.took(), err)
	return err
}

// settleInBackground sends the settlement again and again in the background, for as
// long as an attempt may run. If the process crashes before the store has confirmed it,
// the record lapses.
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

// refuseOutsideTx quarantines an attempt that succeeded in no transaction.
func (x *Execution) refuseOutsideTx(ctx context.Context) error {
	err := x.Quarantine(ctx, ErrNotInTx)
	if err == nil {
		x.e.observe(EventUnfenced, &x.rec, x.took(), ErrNotInTx)
	}
	return errors.Join(ErrNotInTx, err)
}

// refuseAnswer settles an attempt that cannot be completed by the state that is proven.
func (x *Execution) refuseAnswer(ctx context.Context, why error) error {
	if err := x.Fail(ctx, why); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// offers counts the settlements that are sent in the background.
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
