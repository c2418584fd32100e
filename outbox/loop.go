package outbox

import (
	"fmt"
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
	until    time.Time     // when the leases end, by the worker's own clock
	acks     []*pendingAck // not stored yet

	// What is under way. There is at most one step of the store of each kind.
	leasing, reading bool
	storing          int // acknowledgements
	calls            int // of the sink

	renewAt time.Time     // when the leases are to be taken or renewed
	readAt  time.Time     // when the store is to be read
	ackAt   time.Time     // not before this are acknowledgements stored
	idle    time.Duration // between two reads
	rest    time.Duration // between two tries to store acknowledgements, while the store fails

	// Reads are quick, if the store has that, but for those that find what quick reads
	// leave out.
	quick      bool
	left       bool      // the last quick read has left messages out, or may have
	quickAt    time.Time // when quick reads are tried again
	thoroughAt time.Time // when what quick reads have left is to be read
	began      time.Time // the read that is under way, or the last
	restsUntil time.Time // until when a worker that is woken waits

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
	// thorough is for how long quick reads may leave out messages while they find others.
	thorough = 50 * time.Millisecond
	// noQuick is for how long no quick read is made after one that has found nothing and
	// left messages out.
	noQuick = time.Second
)

// newLoop returns the loop of [Worker.Run].
func newLoop(w *Worker) *loop {
	return &loop{opts: &w.opts, stats: &w.stats, quick: w.quick != nil, concurrency: w.opts.Concurrency, inflight: newInflight(), idle: busyPoll}
}

// newPass returns the loop of [Worker.RunOnce]: it makes one call at a time, and has the
// one lease that it begins with.
func newPass(w *Worker) *loop {
	l := newLoop(w)
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
		return l.read(now)
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

// read begins a read: a quick one if the store has that and it is worth while. What quick
// reads leave out is read at once if they find nothing else, and else from time to time.
func (l *loop) read(now time.Time) *readAction {
	l.reading, l.woken, l.began = true, false, now
	l.inflight.beginRead()
	if l.quick && !now.Before(l.quickAt) && !(l.left && !now.Before(l.thoroughAt)) {
		return &readAction{shards: l.inflight.shards(), limit: l.opts.InFlight, quick: true, known: l.inflight.ids()}
	}
	return &readAction{shards: l.inflight.shards(), limit: l.opts.InFlight + l.inflight.size()}
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
		if l.restsUntil.After(now) {
			l.readAt = l.restsUntil
		}
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
	added := l.inflight.endRead(a.list, 3*l.opts.InFlight)
	l.found = added > 0
	if a.err != nil {
		l.err = fmt.Errorf("outbox: read: %w", a.err)
		l.failed("read", a.err)
		l.readAt = now.Add(l.idle)
		return
	}
	if l.rest == 0 {
		l.failures = 0
	}
	l.noteRead(a, now)
	l.restsUntil = now.Add(min(now.Sub(l.began), busyPoll))
	switch {
	case l.found || l.woken:
		l.idle = busyPoll
	case a.quick && l.left: // the next one is thorough
		l.readAt = now
		return
	default:
		l.idle = min(l.idle*2, l.opts.Poll)
	}
	switch {
	case l.found && len(a.list) >= a.limit: // there are more
		l.readAt = now
	case l.woken:
		l.readAt = l.restsUntil
	default:
		l.readAt = now.Add(l.idle)
	}
}

// noteRead decides what kind of read follows one.
func (l *loop) noteRead(a *readAction, now time.Time) {
	if !a.quick {
		l.left, l.thoroughAt = false, now.Add(thorough)
		return
	}
	if l.left = !a.all; l.left && !l.found {
		l.quickAt = now.Add(noQuick)
	}
}

// finishSend acknowledges each message of a call. The message behind one that its
// receiver has may go before the acknowledgement is stored.
func (l *loop) finishSend(a *sendAction) {
	l.calls--
	pending := make([]pendingAck, len(a.batch))
	for i, d := range a.batch {
		p := &pending[i]
		p.delivery, p.receipt = d, a.receipts[i]
		p.ack = ackFor(l.opts, d, &p.receipt)
		if p.ack.Kind == AckDelivered {
			l.inflight.advance(d)
		}
		l.acks = append(l.acks, p)
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
