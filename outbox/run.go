package outbox

import (
	"context"
	"sync"
	"time"
)

// Run delivers until ctx ends. Then it waits for the calls that are under way, ends
// what was delivered, and gives its shards back.
func (w *Worker) Run(ctx context.Context) error {
	r := &run{Worker: w, reads: make(chan read, 1), sents: make(chan sent, w.opts.Concurrency), ends: make(chan endsDone, 1), leases: make(chan leased, 1)}
	defer r.wg.Wait()
	return r.loop(ctx)
}

// run is a worker at work. Its loop owns the desk; what takes time is done by
// goroutines that report to it, at most one for each kind of step of the store.
type run struct {
	*Worker
	wg     sync.WaitGroup
	reads  chan read
	sents  chan sent
	ends   chan endsDone
	leases chan leased

	reading, ending, leasing bool
	resting                  bool // before endings are tried again
	calls                    int
	outs                     []out // to be ended
	leaving                  int   // being ended
	idle                     time.Duration
	failures                 int
}

type read struct {
	list []Delivery
	err  error
}

type endsDone struct {
	outs  []out
	ended []Ended
	err   error
}

type leased struct {
	held  Holding
	until time.Time
	err   error
}

// busyPoll is how long a worker that has just found something waits before it looks
// again.
const busyPoll = 5 * time.Millisecond

func (r *run) loop(ctx context.Context) error {
	steps := context.WithoutCancel(ctx) // what is under way ends, also when the worker is told to
	renew, poll, rest := time.NewTimer(0), time.NewTimer(0), time.NewTimer(0)
	defer renew.Stop()
	defer poll.Stop()
	defer rest.Stop()
	due := true // to look
	r.idle = busyPoll
	for {
		stopping := ctx.Err() != nil
		if stopping && r.calls == 0 && !r.reading && !r.ending && !r.leasing && len(r.outs) == 0 {
			return r.Release(steps)
		}
		if !stopping {
			r.send(steps)
			if due && !r.reading && r.may() && r.toSend() <= r.opts.InFlight/2 && r.desk.size() <= 2*r.opts.InFlight && len(r.desk.held) > 0 {
				due = false
				r.look(steps)
			}
		}
		r.endSome(steps)
		var done <-chan struct{}
		if !stopping {
			done = ctx.Done()
		}
		select {
		case <-done:
		case <-r.wake:
			due = true
		case <-poll.C:
			due = true
		case <-renew.C:
			if !stopping {
				r.renew(steps)
			}
			renew.Reset(r.opts.Lease / 3)
		case got := <-r.leases:
			r.leasing = false
			r.onLease(got)
			due = true
		case got := <-r.reads:
			r.reading, due = false, false
			r.onRead(got)
			poll.Reset(r.idle)
		case got := <-r.sents:
			r.calls--
			r.outs = append(r.outs, r.judged(got)...)
		case got := <-r.ends:
			r.ending, r.leaving = false, 0
			if r.resting = r.onEnd(got); r.resting {
				rest.Reset(endRest)
			}
		case <-rest.C:
			r.resting = false
		}
	}
}

// send hands to the sink what may go.
func (r *run) send(ctx context.Context) {
	for r.calls < r.opts.Concurrency && r.may() {
		batch := r.desk.take(r.opts.Batch)
		if len(batch) == 0 {
			return
		}
		r.calls++
		r.wg.Go(func() { r.sents <- r.deliver(ctx, batch) })
	}
}

// toSend is how many messages are here that the sink has not seen to. The next are
// read while the last are ended.
func (r *run) toSend() int { return r.desk.size() - len(r.outs) - r.leaving }

func (r *run) look(ctx context.Context) {
	r.reading = true
	r.desk.reads()
	shards, limit := r.desk.shards(), r.opts.InFlight+r.desk.size()
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, r.opts.Lease)
		defer cancel()
		list, err := r.store.Due(ctx, shards, limit)
		r.reads <- read{list, err}
	})
}

func (r *run) onRead(got read) {
	if got.err != nil {
		r.failed("read", got.err)
		r.desk.add(nil)
		return
	}
	r.failures = 0
	if r.desk.add(got.list) > 0 {
		r.idle = busyPoll
	} else {
		r.idle = min(r.idle*2, r.opts.Poll)
	}
}

// failed slows down while the store fails.
func (r *run) failed(step string, err error) {
	r.failures++
	r.idle = min(max(r.idle*2, 50*time.Millisecond), max(r.opts.Poll, time.Second))
	if r.failures == 1 || r.failures%20 == 0 {
		r.opts.Logger.Error("outbox: the store fails", "step", step, "times", r.failures, "error", err)
	}
}

// endSome ends what has been delivered, all that has come together at once.
func (r *run) endSome(ctx context.Context) {
	if r.ending || r.resting || len(r.outs) == 0 {
		return
	}
	outs := r.outs
	r.outs, r.leaving, r.ending = nil, len(outs), true
	r.wg.Go(func() {
		ended, err := r.end(ctx, outs)
		r.ends <- endsDone{outs, ended, err}
	})
}

// onEnd takes in how endings ended, and reports whether to rest before the next. If
// nobody can say, they are sent once more while the shard is held: to end what is
// ended changes nothing.
func (r *run) onEnd(got endsDone) (rest bool) {
	if got.err == nil {
		again, busy := r.confirm(got.outs, got.ended)
		r.outs = append(again, r.outs...)
		return busy
	}
	r.failed("end", got.err)
	for i := range got.outs {
		if o := &got.outs[i]; r.desk.holds(o.d.Shard) && r.opts.Clock.Now().Before(r.until) {
			r.outs = append(r.outs, *o)
		} else {
			r.desk.leave(&o.d)
		}
	}
	return true
}

func (r *run) renew(ctx context.Context) {
	if r.leasing {
		return
	}
	r.leasing = true
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, r.opts.Lease/2)
		defer cancel()
		held, until, err := r.lease(ctx)
		r.leases <- leased{held, until, err}
	})
}

func (r *run) onLease(got leased) {
	if got.err != nil {
		r.failed("lease", got.err)
		if r.opts.Clock.Now().After(r.until) {
			r.desk.hold(nil)
		}
		return
	}
	r.desk.hold(got.held.Shards)
	r.until = got.until
}
