package retrysafe

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// beatsPerLease is how often a heartbeat renews one lease: two may be lost.
const beatsPerLease = 3

// keepAlive schedules the next heartbeat: after a third of the lease, or when
// the attempt has run too long.
func (x *Execution) scheduleBeat(now time.Time) {
	e := x.e
	left := e.policy.MaxRun - now.Sub(x.began)
	if left >= e.heartbeats.every {
		e.heartbeats.add(x, now)
		return
	}
	if left <= 0 { // it is to be set aside, and that failed
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

// onBeat renews the lease, or sets aside an attempt that has run too long. When
// the store has not confirmed a renewal by the end of the lease, others may
// suspect this owner, and the operation is told to stop.
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

// renewByBeat takes a new lease, in a step that can be called off.
func (x *Execution) renewByBeat() error {
	start := x.e.clock.Now()
	step := x.e.newStoreContext(x.ctx.parent)
	step.deadlineOnly = false // it ends by more than its deadline
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

// renew takes a new lease, with a new checkpoint unless that is zero. If a
// transaction of CompleteTx is open, the store makes it wait for that to end, so
// that success means it rolled back.
func (x *Execution) renew(ctx context.Context, c Checkpoint) error {
	start := x.e.clock.Now()
	got, err := x.swap(ctx, x.renewal(c), nil)
	if err != nil {
		return err
	}
	x.leaseRenewed(&got, start)
	return nil
}

// setAside ends an attempt that has run too long as far as others are
// concerned: what its effect mode proves becomes of it. Should it come to an
// answer after all while its record is still Unknown, it may store it.
func (x *Execution) setAside(ctx context.Context) {
	e := x.e
	x.ctx.end(ErrTooLong)
	s := settlement{state: e.policy.Effects.proves(), why: ErrTooLong}
	x.mu.Lock()
	r := s.apply(x.current(), 0, &e.policy)
	x.mu.Unlock()
	got, err := x.swap(ctx, r, &s)
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
