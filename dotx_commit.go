package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// A commitAttempt is the result of storing the answer and committing, as far as it is
// known.
type commitAttempt struct {
	at     time.Time // when the answer was sent
	rec    Record
	err    error
	stored bool // the answer is stored in the transaction, so fn had left that open
	sent   bool // the commit was sent, so an error leaves its result open
}

// undone returns the error of an operation that was not committed.
func (d *commitAttempt) undone() error {
	if d.stored || isAnswer(d.err) {
		return NotExecuted(fmt.Errorf("%w: %w", errRolledBack, d.err))
	}
	// If fn has committed by itself, its writes are stored: this error is no proof that
	// nothing happened.
	return fmt.Errorf("%w: it did not take the answer; the function must leave commit and rollback to DoTx, and return the errors of its statements: %w", errRolledBack, d.err)
}

// sendCommit stores the answer in the transaction and commits.
func (t *txCall) sendCommit(next *Write) (d commitAttempt) {
	d.at = t.e.clock.Now()
	step := t.e.newStoreContext(t.b.ctx)
	defer step.done()
	if next.Expect == (Fence{}) {
		if f, ok := t.tx.(CreateCommitter); ok {
			d.rec, d.err = f.CreateAndCommit(step, *next)
			d.sent = !is(d.err, ErrExists) && !is(d.err, ErrBusy) && !is(d.err, ErrTxDone)
			return d
		}
		d.rec, d.err = t.tx.Create(step, *next)
	} else {
		d.rec, d.err = t.tx.Swap(step, *next)
	}
	if d.err == nil {
		d.stored, d.sent = true, true
		failpoint.Hit("dotx.stored")
		d.err = t.tx.Commit(step)
	}
	return d
}

// commit commits the transaction with the answer in it.
func (t *txCall) commit(next *Write) (Outcome, error) {
	d := t.sendCommit(next)
	if d.err == nil {
		failpoint.Hit("dotx.committed")
		t.e.breaker.note(t.e.clock, noteWrote)
		t.tx = nil // there is nothing to roll back
		_ = t.rollback()
		out := t.completed(&d.rec)
		if err := t.confirmStore(&d.rec); err != nil {
			return Outcome{}, err
		}
		return out, nil
	}
	if d.sent {
		return t.resolveCommit(next, &d)
	}
	if is(d.err, ErrTxDone) {
		return t.quarantine(next, d.err)
	}
	_ = t.rollback() // nothing was committed, so its error does not matter
	undone := d.undone()
	t.released(&next.Record, undone)
	switch {
	case is(d.err, ErrUnreadable):
		return Outcome{}, t.e.refuse(d.err, &d.rec)
	case is(d.err, ErrFull):
		return Outcome{}, t.b.unavailable(d.err)
	case isAnswer(d.err):
		return t.decideAgain(undone)
	default:
		return Outcome{}, undone
	}
}

// txStores are the stores that DoTx was given, and that have the records of the engine's own.
type txStores struct {
	known sync.Map // of stores
	count atomic.Int32
}

// maxTxStores bounds the stores that are known: a program may make a value for each call.
const maxTxStores = 64

func (t *txStores) has(store any) bool {
	_, known := t.known.Load(store)
	return known || t.count.Load() >= maxTxStores
}

func (t *txStores) add(store any) {
	if _, known := t.known.LoadOrStore(store, nil); !known {
		t.count.Add(1)
	}
}

// confirmStore returns an error if the engine's store does not have the record that was
// committed: DoTx was given another store. It looks until it has once found a record, so it
// costs one Load for each store that is not the engine's own. The answer stays committed, and
// a retry gets it from DoTx; but Do with this key, the sweeper and operators do not see it.
func (t *txCall) confirmStore(committed *Record) error {
	e, b := t.e, t.b
	if !reflect.ValueOf(t.store).Comparable() {
		t.store = reflect.TypeOf(t.store)
	}
	if t.store == any(e.store) || e.txStores.has(t.store) {
		return nil
	}
	b.renewStoreContext()
	var got Record
	err := b.send(opLoad, &Write{Record: Record{Ref: committed.Ref}}, &got)
	switch {
	case err == nil && got.Owner == b.owner:
		e.txStores.add(t.store)
	case is(err, ErrNotFound) && t.took() < committed.Retain/2: // it cannot have been purged
		return errOtherStore
	}
	return nil // it is not known: the next commit is looked up
}

// errOtherStore: DoTx has committed in a store that does not keep the engine's records.
var errOtherStore = fmt.Errorf("%w: DoTx has committed in another store than the engine's: Do with the same key would run it again, and the sweeper and operators do not see it; give DoTx the store that the engine was made with, or make an engine over this one", ErrPolicy)

// quarantine stores that the outcome is unknown, after the operation has ended the
// transaction itself: it may have committed its effects without the answer.
func (t *txCall) quarantine(next *Write, cause error) (Outcome, error) {
	e, b := t.e, t.b
	_ = t.rollback() // it has ended; this releases what the store holds for it
	err := fmt.Errorf("the function must leave commit and rollback to DoTx: %w", cause)
	next.State, next.Result, next.Reason, next.Term = StateUnknown, nil, reasonOf(err), e.policy.Reconcile
	op := opSwap
	if next.Expect == (Fence{}) {
		op = opCreate
	}
	until := e.clock.Now().Add(e.settleTimeout)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		var got Record
		b.renewStoreContext()
		failed := b.send(op, next, &got)
		switch {
		case failed == nil:
			e.waits.notify(&got, e.clock)
			e.observe(EventQuarantined, &got, t.took(), err)
			return Outcome{}, err
		case is(failed, ErrExists), is(failed, ErrConflict), is(failed, ErrNotFound), is(failed, ErrUnreadable), is(failed, ErrFull):
			failed = fmt.Errorf("%w: the outcome could not be set aside: %w", ErrLost, failed)
			e.observe(EventLost, &next.Record, t.took(), failed)
			return Outcome{}, errors.Join(err, failed)
		case !e.clock.Now().Add(pause).Before(until):
			e.observe(EventForgone, &next.Record, t.took(), failed)
			return Outcome{}, errors.Join(err, fmt.Errorf("%w: %w", ErrUnsettled, failed))
		}
		_ = e.clock.Sleep(context.WithoutCancel(b.ctx), pause)
	}
}

// decideAgain makes run decide anew by the record that another call has stored. The
// call's own operation was rolled back.
func (t *txCall) decideAgain(undone error) (Outcome, error) {
	t.undone = undone
	t.b.renewStoreContext()
	return Outcome{}, errAgain
}

// completed reports that the answer is committed.
func (t *txCall) completed(got *Record) Outcome {
	e := t.e
	e.durations.note(got.Operation, t.took)
	e.waits.notify(got, e.clock)
	if e.observer != nil {
		e.observeIn(t.b.ctx, EventCompleted, got, t.took(), nil)
	}
	return outcomeOf(got, false)
}

// resolveCommit finds out how a commit ended after its reply was lost. It never
// guesses: a commit that hangs is not visible yet and may still take place. It reserves
// the key in a new transaction. The transaction that hangs holds the key until it ends,
// whether it has inserted the record or swapped it. So once the new transaction holds
// the key, it sees what was committed, and nothing is committed any more:
//
//   - the record is this call's: the transaction committed;
//   - there is no record, or it is another call's: the transaction rolled back.
//
// If the answer's retention may have run out meanwhile, neither proves anything.
func (t *txCall) resolveCommit(next *Write, d *commitAttempt) (Outcome, error) {
	e, b := t.e, t.b
	_ = t.rollback() // ends the transaction if it is still open; one that has committed stays so
	until := e.clock.Now().Add(e.settleTimeout)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		var got Record
		b.renewStoreContext()
		err := t.tryReserve(&got, reserve)
		held := t.tx != nil
		_ = t.rollback() // it has written nothing
		switch now := e.clock.Now(); {
		case err == nil && got.Owner == b.owner:
			return t.committed(&next.Record, &got)
		case held && (err == nil || is(err, ErrNotFound)) && now.Sub(d.at) < next.Retain:
			undone := d.undone()
			t.released(&next.Record, undone)
			if err == nil && got.Revision != next.Expect.Revision {
				return t.decideAgain(undone)
			}
			return Outcome{}, undone
		case !now.Add(pause).Before(until):
			e.observe(EventUnsettled, &next.Record, t.took(), d.err)
			return Outcome{}, fmt.Errorf("%w: commit: %w", ErrUnsettled, d.err)
		}
		_ = e.clock.Sleep(context.WithoutCancel(b.ctx), pause)
	}
}

// committed returns the answer that was committed, unless the record has changed since.
func (t *txCall) committed(next, got *Record) (Outcome, error) {
	if got.State == StateCompleted && got.Result.Equal(next.Result) {
		return t.completed(got), nil
	}
	err := fmt.Errorf("%w: it was committed and is %s now", ErrLost, got.State)
	t.e.observe(EventLost, got, t.took(), err)
	return Outcome{}, err
}
