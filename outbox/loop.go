package outbox

import (
	"fmt"
	"slices"
	"time"
)

// A loop decides what a worker does next: renew the leases, store acknowledgements,
// send a batch, read what is due, or rest. next returns one action after the other, and
// finish takes in how each of them ended. The loop itself calls neither store nor sink,
// starts nothing and reads no clock. So [Worker.Run], which performs actions side by
// side, and [Worker.RunOnce], which performs one after the other on the goroutine of its
// caller, have the same loop. One goroutine owns it.
type loop struct {
	opts        *Options
	stats       *stats
	once        bool // one pass: the lease is not renewed
	concurrency int  // calls of the sink at a time

	inflight *inflight
	until    time.Time    // when the leases end, by the worker's own clock
	acks     []pendingAck // not stored yet

	// What is under way. There is at most one step of the store of each kind.
	leasing, reading bool
	storing          int // acknowledgements
	calls            int // of the sink

	renewAt time.Time     // when the leases are to be taken or renewed
	readAt  time.Time     // when the store is to be read
	ackAt   time.Time     // not before this are acknowledgements stored
	idle    time.Duration // between two reads
	rest    time.Duration // between two tries to store acknowledgements, while the store fails

	stopping bool
	leased   bool  // a lease was asked for
	woken    bool  // during a read
	found    bool  // the last read has found messages that are new
	failures int   // of the store, in a row
	err      error // the last failure that left work undone
}

const (
	// busyPoll is how long a worker that has just found messages waits before it reads
	// again.
	busyPoll = 5 * time.Millisecond
	// ackRest is how long acknowledgements that could not be stored wait at first.
	ackRest = 20 * time.Millisecond
	// slowest is how long a worker waits at most between two tries of a store that
	// fails, if Poll is not longer.
	slowest = time.Second
)

// newLoop returns the loop of [Worker.Run].
func newLoop(opts *Options, s *stats) *loop {
	return &loop{opts: opts, stats: s, concurrency: opts.Concurrency, inflight: newInflight(), idle: busyPoll}
}

// newPass returns the loop of [Worker.RunOnce]: it makes one call at a time, and has the
// one lease that it begins with.
func newPass(opts *Options, s *stats) *loop {
	l := newLoop(opts, s)
	l.once, l.concurrency = true, 1
	return l
}

// next returns an action that may begin now, or nil. The caller performs it and hands it
// to finish; until then the loop takes it to be under way.
func (l *loop) next(now time.Time) action {
	switch {
	case l.renews() && !now.Before(l.renewAt):
		l.leasing, l.leased, l.renewAt = true, true, now.Add(l.opts.Lease/3)
		return &leaseAction{}
	case l.storing == 0 && len(l.acks) > 0 && !now.Before(l.ackAt):
		a := &ackAction{acks: l.acks}
		l.acks, l.storing = nil, len(a.acks)
		return a
	case l.shouldSend(now):
		l.calls++
		return &sendAction{batch: l.inflight.take(l.opts.Batch)}
	case l.shouldRead(now):
		l.reading, l.woken = true, false
		l.inflight.beginRead()
		return &readAction{shards: l.inflight.shards(), limit: l.opts.InFlight + l.inflight.size()}
	}
	return nil
}

// renews reports whether leases are taken, or renewed, when their time comes.
func (l *loop) renews() bool { return !l.stopping && !l.leasing && !(l.once && l.leased) }

func (l *loop) shouldSend(now time.Time) bool {
	return !l.stopping && l.calls < l.concurrency && len(l.inflight.ready) > 0 && l.covered(now)
}

// shouldRead: the next messages are read while the acknowledgements of the last are
// stored.
func (l *loop) shouldRead(now time.Time) bool {
	if l.stopping || l.reading || len(l.inflight.leased) == 0 || now.Before(l.readAt) || !l.covered(now) {
		return false
	}
	size := l.inflight.size()
	unsent := size - len(l.acks) - l.storing
	return unsent <= l.opts.InFlight/2 && size <= 2*l.opts.InFlight
}

// covered reports whether a call that begins now ends before the leases do.
func (l *loop) covered(now time.Time) bool { return l.until.Sub(now) > l.opts.Timeout }

// wakeAt returns when next has something to say, if nothing happens before. Zero: not
// before an action ends or the worker is woken.
func (l *loop) wakeAt(now time.Time) (at time.Time) {
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if len(l.acks) > 0 && l.storing == 0 {
		sooner(l.ackAt)
	}
	if l.renews() {
		sooner(l.renewAt)
	}
	if !l.stopping && !l.reading {
		sooner(l.readAt)
	}
	return at
}

// wake makes the loop read at once. A read that is under way may have missed what was
// committed meanwhile, so that another one follows it soon.
func (l *loop) wake(now time.Time) {
	l.woken = true
	if !l.reading {
		l.readAt = now
	}
}

// stop ends the loop gracefully: only acknowledgements are still stored.
func (l *loop) stop() { l.stopping = true }

// stopped reports whether the loop was told to stop, and all is done.
func (l *loop) stopped() bool {
	return l.stopping && !l.leasing && !l.reading && l.calls == 0 && l.storing == 0 && len(l.acks) == 0
}

// readMore makes a pass read at once if there may be more, and else reports that it is
// over.
func (l *loop) readMore(now time.Time) bool {
	if l.stopping || !l.found || !l.covered(now) {
		return false
	}
	l.found, l.readAt = false, now
	return true
}

// finish takes in how an action ended.
func (l *loop) finish(a action, now time.Time) {
	switch a := a.(type) {
	case *leaseAction:
		l.finishLease(a, now)
	case *readAction:
		l.finishRead(a, now)
	case *sendAction:
		l.finishSend(a)
	case *ackAction:
		l.finishAcks(a, now)
	}
}

func (l *loop) finishLease(a *leaseAction, now time.Time) {
	l.leasing, l.readAt = false, now
	switch {
	case a.err == nil:
		l.inflight.setLeases(a.lease.Shards)
		l.until = a.until
	default:
		l.err = fmt.Errorf("outbox: lease: %w", a.err)
		l.failed("lease", a.err)
		if now.After(l.until) {
			l.inflight.setLeases(nil)
		}
	}
}

func (l *loop) finishRead(a *readAction, now time.Time) {
	l.reading = false
	l.found = l.inflight.endRead(a.list, 3*l.opts.InFlight) > 0
	switch {
	case a.err != nil:
		l.err = fmt.Errorf("outbox: read: %w", a.err)
		l.failed("read", a.err)
	case l.found || l.woken:
		l.idle = busyPoll
	default:
		l.idle = min(l.idle*2, l.opts.Poll)
	}
	if a.err == nil && l.rest == 0 {
		l.failures = 0
	}
	l.readAt = now.Add(l.idle)
}

// finishSend acknowledges each message of a call. The message behind one that its
// receiver has may go before the acknowledgement is stored.
func (l *loop) finishSend(a *sendAction) {
	l.calls--
	l.acks = slices.Grow(l.acks, len(a.batch))
	for i := range a.batch {
		d, r := &a.batch[i], &a.receipts[i]
		ack := ackFor(l.opts, d, r)
		if ack.Kind == AckDelivered {
			l.inflight.advance(d)
		}
		l.acks = append(l.acks, pendingAck{*d, *r, ack})
	}
}

// failed slows the loop down while the store fails.
func (l *loop) failed(step string, err error) {
	l.failures++
	l.idle = min(max(l.idle*2, 50*time.Millisecond), max(l.opts.Poll, slowest))
	if l.failures == 1 || l.failures%20 == 0 {
		l.opts.Logger.Error("outbox: the store fails", "step", step, "times", l.failures, "error", err)
	}
}
