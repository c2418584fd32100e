package retrysafe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// CompleteTx stores the answer in the caller's transaction, so that effects and answer
// commit together or not at all. It must be the last step before the commit. If the
// record no longer belongs to this attempt, or steps are stored that this attempt has
// not passed ([ErrPhases]), CompleteTx rolls the transaction back, so that a caller
// that ignores the error cannot commit a second effect. If the transaction has ended
// before ([ErrTxDone]), its effects may be committed without an answer: the execution
// can only end as Unknown then.
//
// No heartbeat is sent while CompleteTx runs. After a rollback the execution is open as
// before: complete it in another transaction, or settle it otherwise.
// [Execution.Outcome] finds out whether the transaction committed.
func (x *Execution) CompleteTx(ctx context.Context, tx Tx, r Result) error {
	if err := x.checkNoOpenTx(); err != nil {
		return errors.Join(err, rollback(ctx, tx))
	}
	ctx = x.traceSettle(ctx, StateCompleted, nil)
	err := x.completeTx(ctx, tx, r)
	x.endSettle(ctx, StateCompleted, err)
	return err
}

// completeTx stores the answer in the transaction.
func (x *Execution) completeTx(ctx context.Context, tx Tx, r Result) error {
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
	if !is(err, ErrTxDone) {
		x.setJoined() // a transaction that refuses a step cannot commit either
	}
	switch {
	case err == nil:
		failpoint.Hit("completetx.swapped")
		x.prepare(&r)
		x.scheduleBeat(x.e.clock.Now()) // the next heartbeat finds out whether the transaction has committed
		return nil
	case is(err, ErrConflict) && got.Owner == x.owner && x.inTx != nil && got.State == StateCompleted && got.Result.Equal(x.inTx):
		// An earlier transaction of CompleteTx had committed, or this very one holds the
		// answer already and was rolled back: only a look from outside tells.
		undone := rollback(ctx, tx)
		if renewing := x.renew(ctx, Checkpoint{}); x.stage == stageSettled {
			err = ErrSettled
		} else {
			err = errors.Join(errCompletedTwice, renewing)
			x.scheduleBeat(x.e.clock.Now())
		}
		return errors.Join(fmt.Errorf("complete in transaction: %w", err), undone)
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
		return fmt.Errorf("complete in transaction: %w; CompleteTx comes before the commit", err)
	default:
		x.scheduleBeat(x.e.clock.Now())
	}
	return errors.Join(fmt.Errorf("complete in transaction: %w", err), rollback(ctx, tx))
}

// errForeignTx: the transaction does not see a record that the store has.
var errForeignTx = fmt.Errorf("%w in the transaction, although the store has it: the transaction was begun on another database than the engine's store, or keeps a snapshot from before the key was reserved", ErrNotFound)

// isStored reports whether the store has the record of this execution.
func (x *Execution) isStored(ctx context.Context) bool {
	step := x.e.newStoreContext(ctx)
	defer step.done()
	got, err := x.e.store.Load(step, x.Ref())
	return err == nil && got.Owner == x.owner && got.continues()
}

// errCompletedTwice: CompleteTx was called twice in one transaction.
var errCompletedTwice = errors.New("retrysafe: CompleteTx was called twice in one transaction, which was rolled back; complete the execution in another one")

// setJoined notes that a transaction took a step of this execution.
func (x *Execution) setJoined() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joined = true
}

// setTxDone notes that the operation has ended a transaction itself.
func (x *Execution) setTxDone() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.txDone = true
}

// endedTx reports whether the operation has ended a transaction itself, which may have
// been a commit.
func (x *Execution) endedTx() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.txDone
}

// outsideTx reports whether the effects are declared to be in transactions and may be
// in one that the engine has not seen.
func (x *Execution) outsideTx() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.e.policy.Effects == EffectsInTx && (x.txDone || !x.joined)
}

// mayCompletePlainly reports whether a success may be stored in no transaction: the
// effects need none, or they were committed by phases.
func (x *Execution) mayCompletePlainly() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.e.policy.Effects != EffectsInTx || x.phased && !x.txDone
}

// setPhased notes that a phase has committed in a transaction.
func (x *Execution) setPhased() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joined, x.phased = true, true
}

// rollback ends a transaction that must not commit, also when the caller's context has
// ended.
func rollback(ctx context.Context, tx Tx) error {
	if err := tx.Rollback(context.WithoutCancel(ctx)); err != nil && !is(err, ErrTxDone) {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// joinedOperations are the operations that were seen to complete in a transaction.
//
// A lapsed attempt with [EffectsInTx] has rolled back, if its answer was to commit with
// its effects. An operation that commits by itself and never calls CompleteTx leaves
// the same record behind when its process is killed, and its effects are stored. So an
// attempt is run again after a lapse only if the operation was reserved when it had been
// seen to complete in a transaction; until then its record says that it is quarantined.
// What was seen is noted in the store, so that it is known after a restart.
type joinedOperations struct {
	mu   sync.Mutex
	seen map[string]sighting // by the operation's name
}

// A sighting is what a process knows of an operation.
type sighting uint8

const (
	unasked   sighting = iota // the store has not answered yet
	unseen                    // the store has no note of it that counts
	seenOld                   // the store's note is due to be renewed
	seenNewly                 // this process saw it, or the store's note is not old
)

// inTx reports whether the operation was seen to complete in a transaction.
func (s sighting) inTx() bool { return s >= seenOld }

const (
	// maxJoined bounds how many operations are remembered.
	maxJoined = 10_000
	// joinedRetain is how long the store keeps the note of an operation.
	joinedRetain = 90 * 24 * time.Hour
)

// joinedRef names the note of an operation.
func joinedRef(operation string) Ref {
	return Ref{Scope: SystemScope("joined"), Key: HashKey(operation)}
}

// of returns what this process knows of an operation.
func (j *joinedOperations) of(operation string) sighting {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen[operation]
}

// set records what is known of an operation. What is known already stays known.
func (j *joinedOperations) set(operation string, s sighting) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil || len(j.seen) >= maxJoined {
		j.seen = make(map[string]sighting)
	}
	j.seen[operation] = max(j.seen[operation], s)
}

// sightingBy returns what the store's note of an operation says. A note is renewed when
// half of its time is over, so that an operation in use is always known. A note that is
// due does not count, also if it was not purged yet.
func sightingBy(note *Record) sighting {
	switch {
	case !note.Readable() || note.Due():
		return unseen
	case note.Deadline.Sub(note.ReadAt) < joinedRetain/2:
		return seenOld
	default:
		return seenNewly
	}
}

// policyOf returns the policy that the call's operation is reserved under: the engine's,
// or the cautious one if it was seen in no transaction yet. The store is asked once for
// each operation. While it does not answer, nothing is reserved: a guess would leave an
// outcome unknown that is not, or run an attempt again that has happened.
func (b *begin) policyOf() (*Policy, error) {
	e := b.e
	if e.policy.Effects != EffectsInTx || e.policy.Lapse == e.cautious.Lapse || b.accept { // accepted work is judged when a worker takes it up
		return &e.policy, nil
	}
	s := e.joined.of(b.c.Operation)
	if s == unasked {
		var note Record
		switch err := b.send(opLoad, &Write{Record: Record{Ref: joinedRef(b.c.Operation)}}, &note); {
		case err == nil:
			s = sightingBy(&note)
		case is(err, ErrNotFound), is(err, ErrUnreadable):
			s = unseen
		default:
			return nil, err
		}
		e.joined.set(b.c.Operation, s)
	}
	if s.inTx() {
		return &e.policy, nil
	}
	return &e.cautious, nil
}

// noteJoined records that the execution's operation has completed in a transaction. It
// replaces a note that is old. If the store does not take the note, the next process
// starts without it.
func (x *Execution) noteJoined(got *Record) {
	e := x.e
	if e.joined.of(got.Operation) == seenNewly || !x.joinedCompletion(got) {
		return
	}
	e.joined.set(got.Operation, seenNewly)
	step := e.newStoreContext(x.ctx.parent)
	defer step.done()
	w := Write{
		Record: Record{
			Ref: joinedRef(got.Operation), Operation: got.Operation, Owner: x.owner, Attempt: 1, Version: RecordVersion,
			State: StateCompleted, Result: &Result{Status: 200}, Effects: EffectsInTx, Lapse: LapseQuarantine, Retain: joinedRetain,
		},
		Term: joinedRetain,
	}
	old, err := e.store.Create(step, w)
	if is(err, ErrExists) && old.Readable() && sightingBy(&old) != seenNewly {
		w.Expect, w.Overwrite = old.Fence(), true
		_, _ = e.store.Swap(step, w)
	}
}

// joinedCompletion reports whether the answer that is stored was a transaction's, or
// that of an operation whose phases were.
func (x *Execution) joinedCompletion(got *Record) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.phased && !x.txDone || x.inTx != nil && got.Result.Equal(x.inTx)
}
