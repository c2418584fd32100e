package retrysafe

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// PhaseTx is [Phase] for writes to the store's own database: fn's writes, the result
// and the checkpoint commit together or not at all. So the writes are made once, even
// if the program crashes. S must keep the engine's records: as a rule it is the
// engine's own store.
//
// Fn writes in the transaction that it is given and neither commits it nor rolls it
// back. When it returns an error or panics, the transaction is rolled back. The record
// is locked while the transaction is open, so no other process can claim it, and no
// heartbeat is sent. If the reply to the commit is lost, PhaseTx finds out how the
// commit ended, like [Execution.Outcome]. An execution that has lost its record cannot
// commit.
//
// Without an execution in ctx, fn runs in a transaction of its own.
func PhaseTx[X, T any](ctx context.Context, s TxStore[X], name string, fn func(context.Context, X) (T, error)) (T, error) {
	var out T
	step := Step{Name: name}
	x, err := executionOf(ctx, &step)
	if err != nil {
		return out, err
	}
	if x == nil {
		return plainTx(ctx, s, name, fn)
	}
	return stepResult(&step, &out, x.runPhaseTx(ctx, &step, func(ctx context.Context) (Tx, func() error, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func() error {
			v, err := fn(ctx, own)
			if err != nil {
				return err
			}
			return step.returns(v, &out)
		}, err
	}))
}

// plainTx runs fn in a transaction of its own, without an execution.
func plainTx[X, T any](ctx context.Context, s TxStore[X], name string, fn func(context.Context, X) (T, error)) (out T, err error) {
	tx, own, err := s.BeginTx(ctx)
	if err != nil {
		return out, fmt.Errorf("phase %q: begin: %w", name, err)
	}
	back := false
	defer func() {
		if !back {
			_ = rollback(ctx, tx) // the caller gets the panic
		}
	}()
	out, err = fn(ctx, own)
	back = true
	if err != nil {
		return *new(T), errors.Join(err, rollback(ctx, tx))
	}
	if err := tx.Commit(ctx); err != nil {
		return *new(T), fmt.Errorf("phase %q: commit: %w", name, err)
	}
	return out, nil
}

// phaseTx is the state of one call of PhaseTx.
type phaseTx struct {
	x     *Execution
	s     *Step
	begin func(context.Context) (Tx, func() error, error)
	tx    Tx // the transaction that is open, if any
	run   func() error
	fence int64 // the record's revision in the transaction
}

// runPhaseTx runs a phase in a transaction unless its result is stored.
func (x *Execution) runPhaseTx(ctx context.Context, s *Step, begin func(context.Context) (Tx, func() error, error)) error {
	stored, err := x.beginStep(ctx, s)
	if err != nil {
		return err
	}
	if stored != nil {
		s.Result = stored.Result
		x.setPhased() // an earlier attempt has committed it
		return errAlreadyDone
	}
	defer x.endStep()
	t := phaseTx{x: x, s: s, begin: begin}
	if err := t.open(ctx); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	defer x.leaveGateTx()
	defer func() { _ = t.rollback(ctx) }() // it is open only after an error or a panic, which the caller gets
	failpoint.Hit("phasetx.open")
	if err := t.run(); err != nil {
		if is(t.rollback(ctx), ErrTxDone) { // its writes may be stored without its result
			x.setUncertain(true)
			x.setTxDone()
			return fmt.Errorf("%s: the function must leave commit and rollback to PhaseTx: %w", s, errors.Join(err, ErrTxDone))
		}
		return err
	}
	failpoint.Hit("phasetx.ran")
	return t.commit(ctx)
}

// leaveGateTx releases the gate that the transaction has held.
func (x *Execution) leaveGateTx() {
	x.mu.Lock()
	x.log.inTx = false
	x.mu.Unlock()
	x.leaveGate()
}

// rollback rolls back the transaction that is open, if any.
func (t *phaseTx) rollback(ctx context.Context) error {
	if t.tx == nil {
		return nil
	}
	step := t.x.e.newStoreContext(ctx)
	defer step.done()
	err := t.tx.Rollback(step)
	t.tx = nil
	return err
}

// open begins a transaction and locks the record in it. It tries again while the store
// does not answer or another transaction holds the record. On success the gate is held.
func (t *phaseTx) open(ctx context.Context) error {
	x := t.x
	until := x.e.clock.Now().Add(x.e.settleTimeout)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		err := t.tryOpen(ctx)
		if err == nil {
			return nil
		}
		_ = t.rollback(ctx) // it has changed nothing
		final := errors.Is(err, ErrPhases) || errors.Is(err, ErrUnreadable) || !x.isRunning()
		if final || !x.e.clock.Now().Add(pause).Before(until) || x.e.clock.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// tryOpen begins the transaction before it enters the gate, so that no heartbeat is
// missed while it waits for a connection.
func (t *phaseTx) tryOpen(ctx context.Context) (err error) {
	x := t.x
	if t.tx, t.run, err = t.begin(ctx); err != nil {
		t.tx = nil
		return fmt.Errorf("begin: %w", err)
	}
	x.enterGate(ctx)
	if err := t.lock(ctx); err != nil {
		x.leaveGate()
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log.inTx = true
	return nil
}

// lock reserves the key and renews the lease in the transaction. From then on the
// record is locked. An execution that has lost its record fails here.
func (t *phaseTx) lock(ctx context.Context) error {
	x := t.x
	if x.stage != stageRunning {
		return x.closedReason()
	}
	step := x.e.newStoreContext(ctx)
	defer step.done()
	got, err := t.tx.Reserve(step, x.ref)
	switch mine := got.Owner == x.owner && got.Attempt == x.attempt && got.continues(); {
	case is(err, ErrNotFound):
		return fmt.Errorf("%w: its store has no record of this execution; it must be the engine's own", ErrPhases)
	case err != nil:
		return fmt.Errorf("reserve in transaction: %w", err)
	case !mine:
		return x.lose(&got, ErrConflict)
	}
	x.adopt(&got)
	failpoint.Hit("phasetx.adopted")
	if got, err = t.tx.Swap(step, x.renewal(Checkpoint{})); err != nil {
		return fmt.Errorf("lock in transaction: %w", err)
	}
	t.fence = got.Revision
	return nil
}

// adopt continues from got, the execution's own record as it is stored.
func (x *Execution) adopt(got *Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec.Revision, x.rec.Inquiry = got.Revision, got.Inquiry.resumed()
	if x.log.providerRef == "" {
		x.log.providerRef = got.ProviderRef
	}
}

// isRunning reports whether the execution may take steps.
func (x *Execution) isRunning() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stage == stageRunning
}

// commit stores the result in the transaction and commits both.
func (t *phaseTx) commit(ctx context.Context) error {
	x := t.x
	x.mu.Lock()
	next, err := x.log.checkpointWith(t.s)
	x.mu.Unlock()
	if err != nil {
		return err
	}
	start := x.e.clock.Now()
	w := x.renewal(next)
	w.Expect.Revision = t.fence
	step := x.e.newStoreContext(ctx)
	defer step.done()
	got, err := t.tx.Swap(step, w)
	failpoint.Hit("phasetx.stored")
	if err != nil {
		err = fmt.Errorf("it did not take the result; the function must leave commit and rollback to PhaseTx, and return the errors of its statements: %w", err)
	} else if err = t.tx.Commit(step); err == nil {
		failpoint.Hit("phasetx.committed")
		t.tx = nil
		x.leaseRenewed(&got, start)
		x.stepFinished(t.s, next.Data)
		x.setPhased()
		return nil
	}
	if is(err, ErrTxDone) { // its writes may be stored without its result
		x.setUncertain(true)
		x.setTxDone()
		return fmt.Errorf("%s: %w", t.s, err)
	}
	return t.resolveCommit(ctx, next, err)
}

// resolveCommit finds out how the transaction ended after its commit has failed. A
// renewal at the revision that the transaction started from waits for the transaction's
// end. Then the record's checkpoint says whether it committed.
func (t *phaseTx) resolveCommit(ctx context.Context, next Checkpoint, cause error) error {
	x := t.x
	x.setUncertain(true)
	_ = t.rollback(ctx) // ends the transaction if it is still open; one that has committed stays so
	if err := x.renewUntilAnswered(ctx, Checkpoint{}); err != nil {
		return fmt.Errorf("%s: it is unknown whether its transaction has committed: %w", t.s, errors.Join(cause, err))
	}
	if bytes.Equal(x.Checkpoint().Data, next.Data) {
		x.stepFinished(t.s, next.Data)
		x.setPhased()
		return nil
	}
	x.setUncertain(false)
	return fmt.Errorf("%s: its transaction was rolled back: %w", t.s, cause)
}
