package retrysafe

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// CompleteTx stores the answer in the caller's transaction, so that effects and answer
// commit together or not at all. It must be the last step before the commit. If the
// record no longer belongs to this attempt, or steps are stored that this attempt has
// not passed ([ErrPhases]), CompleteTx rolls the transaction back, so that a caller
// that ignores the error cannot commit a second effect.
//
// No heartbeat is sent while CompleteTx runs. After a rollback the execution is open as
// before: complete it in another transaction, or settle it otherwise.
// [Execution.Outcome] finds out whether the transaction committed.
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
	next := x.update()
	s.apply(&next, x.retain, &x.e.policy)
	x.mu.Unlock()
	got, err := tx.Swap(ctx, next)
	switch {
	case err == nil:
		failpoint.Hit("completetx.swapped")
		x.prepare(&r)
		x.scheduleBeat(x.e.clock.Now()) // the next heartbeat finds out whether the transaction has committed
		return nil
	case is(err, ErrConflict) && got.Owner == x.owner && x.inTx != nil && got.State == StateCompleted && got.Result.Equal(x.inTx):
		x.ended(&got) // an earlier transaction of CompleteTx had committed
		err = ErrSettled
	case is(err, ErrConflict) && got.Owner == x.owner && (got.State == StateInProgress || got.State == StateUnknown):
		x.store(&got, stageRunning) // the reply to a heartbeat was lost; the next transaction succeeds
		x.scheduleBeat(x.e.clock.Now())
	case is(err, ErrConflict), is(err, ErrNotFound):
		err = x.lose(&got, err)
	default:
		x.scheduleBeat(x.e.clock.Now())
	}
	return errors.Join(fmt.Errorf("complete in transaction: %w", err), rollback(ctx, tx))
}

// rollback ends a transaction that must not commit, also when the caller's context has
// ended.
func rollback(ctx context.Context, tx Tx) error {
	if err := tx.Rollback(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}
