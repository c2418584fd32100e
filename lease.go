package retrysafe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// beatsPerLease is how many heartbeats there are in one lease, so that two may fail.
const beatsPerLease = 3

// scheduleBeat schedules the next heartbeat: after a third of the lease, or when
// the attempt has run too long.
func (x *Execution) scheduleBeat(now time.Time) {
	e := x.e
	left := e.policy.MaxRun - now.Sub(x.began)
	if left >= e.heartbeats.every {
		e.heartbeats.add(x, now)
		return
	}
	if left <= 0 { // setting it aside has failed: try again
		left = e.heartbeats.every
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = e.clock.AfterFunc(left, x.onBeat)
}

func (x *Execution) stopBeat() {
	x.e.heartbeats.remove(x)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last != nil {
		x.last.Stop()
	}
}

// onBeat renews the lease, or sets aside an attempt that has run too long. When the
// store has not confirmed a renewal by the end of the lease, other processes may claim
// the record, so the operation's context is ended.
func (x *Execution) onBeat() {
	if !x.tryEnterGate() { // a checkpoint or a settlement is under way
		x.scheduleBeat(x.e.clock.Now())
		return
	}
	defer x.leaveGate()
	if x.stage != stageRunning {
		return
	}
	e := x.e
	if x.took() >= e.policy.MaxRun {
		x.setAside(x.ctx.parent)
		return
	}
	failpoint.Hit("beat.due")
	err := x.renewByBeat()
	failpoint.Hit("beat.renewed")
	if x.stage != stageRunning {
		return
	}
	now := e.clock.Now()
	if err != nil && !now.Before(x.leaseEnd) {
		x.ctx.end(ErrLost)
	}
	x.scheduleBeat(now)
}

// renewByBeat renews the lease in a step that [Execution.cancelBeat] can cancel.
func (x *Execution) renewByBeat() error {
	start := x.e.clock.Now()
	step := x.e.newStoreContext(x.ctx.parent)
	step.deadlineOnly = false // cancelBeat may end it before its deadline
	x.mu.Lock()
	x.beat = step
	x.mu.Unlock()
	got, err := x.swapWithin(step, x.renewal(Checkpoint{}), nil)
	x.mu.Lock()
	x.beat = nil
	x.mu.Unlock()
	step.done()
	if err == nil {
		x.leaseRenewed(&got, start)
	}
	return err
}

// renew renews the lease, with a new checkpoint unless that is zero. If a transaction
// of CompleteTx is open, the store makes the renewal wait for its end, so that success
// means that the transaction rolled back.
func (x *Execution) renew(ctx context.Context, c Checkpoint) error {
	start := x.e.clock.Now()
	got, err := x.swap(ctx, x.renewal(c), nil)
	if err != nil {
		return err
	}
	x.leaseRenewed(&got, start)
	return nil
}

// setAside stores the state that the effect mode proves for an attempt that has run too
// long. While its record is still Unknown, the attempt may store an answer after all.
func (x *Execution) setAside(ctx context.Context) {
	e := x.e
	x.ctx.end(ErrTooLong)
	s := settlement{state: e.policy.Effects.proves(), why: ErrTooLong}
	if !e.joined.of(x.rec.Operation).inTx() && x.outsideTx() || x.endedTx() {
		s.state = StateUnknown // it may commit by itself
	}
	x.mu.Lock()
	w := x.update()
	x.mu.Unlock()
	s.apply(&w, 0, &e.policy)
	got, err := x.swap(ctx, w, &s)
	switch {
	case err == nil:
		x.store(&got, stageSetAside)
		e.waits.notify(&got, e.clock)
		e.observe(EventQuarantined, &got, x.took(), ErrTooLong)
	case errors.Is(err, ErrSettled), errors.Is(err, ErrLost):
	default:
		x.scheduleBeat(e.clock.Now())
	}
}

// heartbeatQueue schedules the heartbeats of one engine's executions. All of them wait
// for the same duration, so they are due in the order of their arrival, and one timer
// serves them all. An operation that is over before its first heartbeat costs two list
// operations and no timer.
type heartbeatQueue struct {
	clock Clock
	every time.Duration

	mu          sync.Mutex
	first, last *Execution
	armed       bool
}

// heartbeatEntry is the place of one execution in the heartbeatQueue, guarded by the
// queue's mutex.
type heartbeatEntry struct {
	due        time.Time
	prev, next *Execution
	queued     bool
}

// add queues x for its next heartbeat, counted from now.
func (r *heartbeatQueue) add(x *Execution, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.heartbeat.queued {
		r.unlink(x)
	}
	x.heartbeat = heartbeatEntry{due: now.Add(r.every), prev: r.last, queued: true}
	if r.last == nil {
		r.first = x
	} else {
		r.last.heartbeat.next = x
	}
	r.last = x
	if !r.armed {
		r.armed = true
		r.clock.AfterFunc(r.every, r.fire)
	}
}

// remove takes x out of the queue, if it is there.
func (r *heartbeatQueue) remove(x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.heartbeat.queued {
		r.unlink(x)
	}
}

func (r *heartbeatQueue) unlink(x *Execution) {
	p := x.heartbeat
	if p.prev == nil {
		r.first = p.next
	} else {
		p.prev.heartbeat.next = p.next
	}
	if p.next == nil {
		r.last = p.prev
	} else {
		p.next.heartbeat.prev = p.prev
	}
	x.heartbeat = heartbeatEntry{}
}

// fire starts the heartbeats that are due, each on a goroutine of its own because each
// is a step of the store. Then it arms the timer for the next one.
func (r *heartbeatQueue) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for r.first != nil && !r.first.heartbeat.due.After(now) {
		x := r.first
		r.unlink(x)
		r.clock.AfterFunc(0, x.onBeat)
	}
	if r.first == nil {
		r.armed = false // the next add arms the timer again
		return
	}
	r.clock.AfterFunc(r.first.heartbeat.due.Sub(now), r.fire)
}

// renewal returns the write that renews the lease, with a new checkpoint unless
// that is zero.
func (x *Execution) renewal(c Checkpoint) Write {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.update()
	w.State, w.Result, w.Term = StateInProgress, nil, x.e.policy.Lease
	if !c.IsZero() {
		w.Checkpoint, w.SetCheckpoint = c, true
	}
	return w
}

// leaseRenewed records a lease that was requested at start and that the store has
// confirmed.
func (x *Execution) leaseRenewed(got *Record, start time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rec, x.stage, x.inTx = *got, stageRunning, nil
	x.leaseEnd = start.Add(x.e.policy.Lease)
	if w := x.log; w != nil && w.providerRef == "" {
		w.providerRef = got.ProviderRef
	}
}

// renewUntilAnswered renews the lease until the store has answered, or until
// SettleTimeout. The caller holds the gate.
func (x *Execution) renewUntilAnswered(ctx context.Context, c Checkpoint) error {
	until := x.e.clock.Now().Add(x.e.settleTimeout)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		err := x.renew(ctx, c)
		if err == nil || x.stage != stageRunning || !x.e.clock.Now().Add(pause).Before(until) {
			return err
		}
		_ = x.e.clock.Sleep(context.WithoutCancel(ctx), pause)
	}
}
