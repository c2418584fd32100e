package retrysafe

import (
	"context"
	"errors"
	"time"
)

// beatsPerLease is how often a heartbeat renews one lease: two may be lost.
const beatsPerLease = 3

// keepAlive schedules the next heartbeat of an attempt that has been running for
// took: after a third of the lease, or when it has run too long.
func (x *Execution) keepAlive(took time.Duration) {
	e := x.e
	next := min(e.policy.Lease/beatsPerLease, max(e.policy.MaxRun-took, 0))
	x.mu.Lock()
	defer x.mu.Unlock()
	x.beat = e.clock.AfterFunc(next, x.onBeat)
}

func (x *Execution) stopBeat() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.beat != nil {
		x.beat.Stop()
	}
}

// onBeat renews the lease, or sets aside an attempt that has run too long. When
// the store has not confirmed a renewal by the end of the lease, others may
// suspect this owner, and the operation is told to stop.
func (x *Execution) onBeat() {
	if !x.tryEnter() { // a checkpoint or a settlement is under way
		x.keepAlive(x.took())
		return
	}
	defer x.leave()
	if x.phase != running {
		return
	}
	e := x.e
	if x.took() >= e.policy.MaxRun {
		x.setAside(x.ctx.parent)
		return
	}
	err := x.renew(x.ctx.parent, Checkpoint{})
	if x.phase != running {
		return
	}
	if err != nil && !e.clock.Now().Before(x.leaseEnd) {
		x.ctx.end(ErrLost)
	}
	x.keepAlive(x.took())
}

// renew takes a new lease, with a new checkpoint unless that is zero. If a
// transaction of CompleteTx is open, the store makes it wait for that to end, so
// that success means it rolled back.
func (x *Execution) renew(ctx context.Context, c Checkpoint) error {
	start := x.e.clock.Now()
	r := x.rec
	r.State, r.Result, r.Checkpoint, r.Term = InProgress, nil, c, x.e.policy.Lease
	got, err := x.swap(ctx, r, nil)
	if err != nil {
		return err
	}
	x.store(&got, running)
	x.leaseEnd = start.Add(x.e.policy.Lease)
	x.prepared = nil
	return nil
}

// setAside ends an attempt that has run too long as far as others are
// concerned: what its effect mode proves becomes of it. Should it come to an
// answer after all while its record is still Unknown, it may store it.
func (x *Execution) setAside(ctx context.Context) {
	e := x.e
	x.ctx.end(ErrTooLong)
	s := settlement{state: e.policy.Effects.proves(), why: ErrTooLong}
	got, err := x.swap(ctx, s.apply(x.rec, 0, &e.policy), &s)
	switch {
	case err == nil:
		x.store(&got, aside)
		e.waits.tell(&got, e.clock)
		e.observe(EventQuarantined, &got, x.took(), ErrTooLong)
	case errors.Is(err, ErrSettled), errors.Is(err, ErrLost):
	default:
		x.mu.Lock()
		x.beat = e.clock.AfterFunc(e.policy.Lease/beatsPerLease, x.onBeat)
		x.mu.Unlock()
	}
}
