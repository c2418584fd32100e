package retrysafe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// An Execution is the right to run one operation. It must be settled, by exactly one of
// [Execution.Complete], [Execution.CompleteTx], [Execution.Release] or
// [Execution.Quarantine]; until then a heartbeat keeps its lease. If it is not settled,
// it lapses, and its policy says what becomes of it.
//
// It is safe for concurrent use. Its heartbeat, checkpoints and settlement never
// overlap.
type Execution struct {
	ctx     executionContext
	e       *Engine
	ref     Ref
	owner   Owner
	attempt int
	began   time.Time

	mu       sync.Mutex
	busy     bool             // a step of the store is under way; see enterGate
	stage    stage            // how far the execution has come
	rec      Record           // as last stored
	leaseEnd time.Time        // on the engine's clock: from then on other processes may claim the record
	last     Timer            // fires at the end of MaxRun
	beat     *detachedContext // the context of a heartbeat that is under way
	inTx     *Result          // the answer in a transaction of CompleteTx that is not confirmed
	fenced   bool             // CompleteTx or HandOver was called
	joined   bool             // a transaction of the operation was seen: it took the answer, a message or the result of a phase, or was refused
	phased   bool             // a phase of the operation has committed in a transaction, with its checkpoint
	txDone   bool             // a transaction of the operation was ended by the operation itself, in a way the engine cannot see
	handedTo Owner            // the message that owns the key once the transaction of HandOver has committed
	retain   time.Duration
	log      *stepLog // its phases and effects; nil before the first

	heartbeat heartbeatEntry // in the engine's heartbeat queue
}

// stage is how far an execution has come.
type stage uint8

const (
	stageRunning  stage = iota
	stageSetAside       // it ran too long and was set aside; it may still be settled
	stageOffering       // an answer exists; the store has not confirmed it
	stageSettled        // the store has confirmed how it ended
	stageLost           // the record belongs to another attempt, or another process settled it
)

// execution returns the execution of a record that this process holds.
func (e *Engine) execution(ctx context.Context, r *Record) *Execution {
	now := e.clock.Now()
	x := &Execution{
		e: e, ref: r.Ref, owner: r.Owner, attempt: r.Attempt, began: now,
		rec: *r, leaseEnd: now.Add(r.Deadline.Sub(r.ReadAt)), // what is left of the lease by the store's clock
	}
	x.ctx.init(ctx, e.clock, e.policy.MaxRun)
	x.ctx.deadline = now.Add(e.policy.MaxRun)
	x.ctx.x = x
	return x
}

// Context returns the context to run the operation in. It carries the values of the
// context that Begin was given but not its cancellation. It ends when the operation has
// run too long or the record was lost to another attempt, and context.Cause says which.
func (x *Execution) Context() context.Context { return &x.ctx }

// Stop ends the execution's context. The caller of the operation's code calls it when
// that code has returned; it settles nothing.
func (x *Execution) Stop() {
	x.endRun(0, nil) // it has ended before if a settlement was tried
	x.ctx.end(context.Canceled)
}

// Ref returns the key that the execution is for.
func (x *Execution) Ref() Ref { return x.ref }

// Attempt returns the number of this attempt, from 1.
func (x *Execution) Attempt() int { return x.attempt }

// Record returns the record as this process last saw it stored.
func (x *Execution) Record() Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rec
}

// Retain sets how long the final answer is kept, instead of the policy's
// retention. It counts from the moment the answer is stored.
func (x *Execution) Retain(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.retain = max(d, 0)
}

// Checkpoint returns the last checkpoint of this operation. If the attempt resumes an
// earlier one, that is the earlier attempt's at first.
func (x *Execution) Checkpoint() Checkpoint {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rec.Checkpoint
}

// Save stores a checkpoint and renews the lease with it. It is refused in an operation
// with phases or effects: those write the checkpoints.
func (x *Execution) Save(ctx context.Context, c Checkpoint) error {
	if err := x.checkNoOpenTx(); err != nil {
		return err
	}
	x.enterGate(ctx)
	defer x.leaveGate()
	switch {
	case x.stage != stageRunning:
		return x.closedReason()
	case x.log != nil || x.rec.Checkpoint.isSteps():
		return fmt.Errorf("%w: Save would overwrite the steps that are stored", ErrPhases)
	}
	return x.renew(ctx, c)
}

// Outcome returns the answer of a completed execution. For one that was completed in a
// transaction it asks the store whether the transaction has committed, and waits for a
// commit that is under way. [ErrOpen]: the execution is not settled, or its transaction
// rolled back.
func (x *Execution) Outcome(ctx context.Context) (Outcome, error) {
	if x.checkNoOpenTx() != nil {
		return Outcome{}, ErrOpen
	}
	x.enterGate(ctx)
	defer x.leaveGate()
	if x.stage == stageRunning && (x.inTx != nil || !x.handedTo.IsZero()) {
		// A renewal at the revision that the transaction started from waits for the
		// transaction to end. Then it either succeeds, because the transaction rolled
		// back, or finds what was committed. A plain read would not wait.
		failpoint.Hit("outcome.asking")
		if err := x.renew(ctx, Checkpoint{}); err != nil && x.stage != stageSettled {
			return Outcome{}, err
		}
	}
	switch {
	case x.stage == stageSettled && x.rec.State == StateCompleted:
		return outcomeOf(&x.rec, false), nil
	case x.stage == stageRunning:
		return Outcome{}, ErrOpen
	default:
		return Outcome{}, x.closedReason()
	}
}

// Expires returns when the answer of a settled execution is forgotten, by the store's
// clock. It is false while the execution is open and for an unknown outcome, which is
// never forgotten.
func (x *Execution) Expires() (time.Time, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rec.Deadline, x.stage == stageSettled && x.rec.State != StateUnknown
}

// Untouched reports whether no settlement of the execution was tried so far.
func (x *Execution) Untouched() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stage == stageRunning && x.inTx == nil && x.handedTo.IsZero() && !x.busy
}

// Fenced reports whether the answer or the key was handed to a transaction, whether or
// not that has committed.
func (x *Execution) Fenced() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fenced
}

// State returns InProgress while the execution is open, and the state that it was
// settled in afterwards.
func (x *Execution) State() State {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stage == stageSettled {
		return x.rec.State
	}
	return StateInProgress
}

// closedReason returns the error of a step on an execution that is no longer running.
func (x *Execution) closedReason() error {
	switch x.stage {
	case stageSettled:
		return ErrSettled
	case stageOffering:
		return ErrUnsettled
	case stageSetAside:
		return ErrTooLong
	default:
		return ErrLost
	}
}

// enterGate waits until no other step of this execution is under way, and then blocks
// other steps until leaveGate. It sleeps on the engine's clock rather than on a lock,
// because a step may take as long as the store does. It does not end with ctx: a
// settlement must happen even if its caller's context has ended.
func (x *Execution) enterGate(ctx context.Context) {
	for pause := 100 * time.Microsecond; !x.tryEnterGate(); pause = min(pause*2, 10*time.Millisecond) {
		_ = x.e.clock.Sleep(context.WithoutCancel(ctx), pause)
	}
}

// beatGrace is how long a step in a transaction waits for a heartbeat that is under
// way.
const beatGrace = 100 * time.Millisecond

// enterGateTx is enterGate for a step in the caller's transaction. If the store has one
// writer, a heartbeat that is under way may wait for that very transaction, so after
// beatGrace it is cancelled. If it was applied all the same, the store refuses the step
// in the transaction; the caller succeeds with its next transaction.
func (x *Execution) enterGateTx(ctx context.Context) {
	until := x.e.clock.Now().Add(beatGrace)
	for pause := 100 * time.Microsecond; !x.tryEnterGate(); pause = min(pause*2, 10*time.Millisecond) {
		if !x.e.clock.Now().Before(until) {
			x.cancelBeat()
		}
		_ = x.e.clock.Sleep(context.WithoutCancel(ctx), pause)
	}
}

func (x *Execution) cancelBeat() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.beat != nil {
		x.beat.end(context.Canceled)
	}
}

func (x *Execution) tryEnterGate() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy {
		return false
	}
	x.busy = true
	return true
}

func (x *Execution) leaveGate() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy = false
}

// store sets the record and the stage after the store has confirmed a write.
func (x *Execution) store(r *Record, p stage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec, x.stage = *r, p
	if p == stageRunning && r.State == StateUnknown { // it was taken for unknown too early
		x.rec.Inquiry = r.Inquiry.resumed()
	}
}

// prepare sets the result that an unconfirmed transaction holds; nil if there is none.
func (x *Execution) prepare(r *Result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inTx, x.handedTo = r, Owner{}
}

func (x *Execution) took() time.Duration { return x.e.clock.Now().Sub(x.began) }

// maxReason bounds what is kept of an error's text.
const maxReason = 500

// reasonOf returns the text of err in a form that every store can keep.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return clean(err.Error())
}

// clean returns s in a form that every store can keep.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "�")
	s = strings.Map(func(r rune) rune {
		if r == 0 || r == '\x1f' { // PostgreSQL stores no zero byte; notes are separated by 0x1f
			return '�'
		}
		return r
	}, s)
	if len(s) <= maxReason {
		return s
	}
	cut := maxReason
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// update returns a write that replaces the record as it is known to be stored, with the
// provider's name that the attempt's steps have learnt since. The caller holds mu.
func (x *Execution) update() Write {
	w := x.rec.Update()
	if x.log != nil {
		w.ProviderRef = x.log.providerRef
	}
	return w
}
