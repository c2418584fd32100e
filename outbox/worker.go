package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Options are what a [Worker] may be given. Nil and zero values are the defaults.
type Options struct {
	// Concurrency is how many calls of the sink may be under way. Default 16.
	Concurrency int
	// Batch is how many messages one call of the sink gets at most. Default 100.
	Batch int
	// InFlight is how many messages are read at once; at most three times as many
	// are held here, those that are being ended included. Default 5,000.
	InFlight int
	// Timeout bounds one call of the sink. Default 10 s.
	Timeout time.Duration
	// Lease is how long a worker holds its shards without a word. It must be longer
	// than twice the Timeout, so that a call ends before the shard has another
	// worker. Default 30 s.
	Lease time.Duration
	// Poll is how long a worker that has nothing to do waits before it looks again.
	// Default 500 ms. While there is something to do it looks much more often.
	Poll time.Duration
	// MaxTries is after how many tries a message is buried. Default 20.
	MaxTries int
	// Backoff is between tries. Default 1 s, doubled up to 30 min.
	Backoff Backoff
	// Horizon is how long a message is tried, counted from when it was enqueued.
	// Default 20 h.
	Horizon time.Duration
	// Window is how long the receiver remembers a key. Beyond it a message that was
	// sent before would be a new one, so the horizon must end before it does.
	// Default 24 h; negative: the receiver needs no key.
	Window time.Duration
	// Logger gets what an operator should see. Default [slog.Default].
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Concurrency, o.Batch, o.InFlight = cmp.Or(o.Concurrency, 16), cmp.Or(o.Batch, 100), cmp.Or(o.InFlight, 5000)
	o.Timeout, o.Lease, o.Poll = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.Poll, 500*time.Millisecond)
	o.MaxTries = cmp.Or(o.MaxTries, 20)
	o.Backoff.First, o.Backoff.Longest = cmp.Or(o.Backoff.First, time.Second), cmp.Or(o.Backoff.Longest, 30*time.Minute)
	o.Horizon, o.Window = cmp.Or(o.Horizon, 20*time.Hour), cmp.Or(o.Window, 24*time.Hour)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o *Options) check() error {
	switch {
	case o.Concurrency < 1 || o.Batch < 1 || o.InFlight < 1 || o.MaxTries < 1 || o.Timeout <= 0 || o.Lease <= 0 || o.Poll <= 0 || o.Backoff.First <= 0 || o.Horizon <= 0:
		return errors.New("outbox: an option is negative")
	case o.Backoff.Longest < o.Backoff.First:
		return fmt.Errorf("outbox: the longest back-off %v is under the first %v", o.Backoff.Longest, o.Backoff.First)
	case o.Lease <= 2*o.Timeout:
		return fmt.Errorf("outbox: Lease %v is not longer than twice the Timeout %v: a call could outlive the right to make it", o.Lease, o.Timeout)
	case o.Window > 0 && o.Horizon+o.Backoff.Longest+o.Lease+o.Timeout >= o.Window:
		return fmt.Errorf("outbox: a message may be sent %v after it was enqueued (Horizon + longest back-off + Lease + Timeout), but its receiver remembers keys for %v; shorten the Horizon",
			o.Horizon+o.Backoff.Longest+o.Lease+o.Timeout, o.Window)
	}
	return nil
}

// A Worker delivers what is in an outbox. Any number may run over one store, in any
// number of processes: each message has one worker at a time, and one that was
// stopped for too long ends nothing any more.
type Worker struct {
	store Store
	sink  Sink
	opts  Options
	owner retrysafe.Owner
	wake  chan struct{}
	stats stats

	desk  *desk
	until time.Time // when the shards may have another worker, by our own clock
}

// stats are what a worker has done.
type stats struct{ delivered, again, buried, fenced atomic.Int64 }

// Stats are what a worker has done since it was made.
type Stats struct{ Delivered, Again, Buried, Fenced int64 }

// Stats returns what the worker has done.
func (w *Worker) Stats() Stats {
	return Stats{w.stats.delivered.Load(), w.stats.again.Load(), w.stats.buried.Load(), w.stats.fenced.Load()}
}

// NewWorker returns a worker that delivers what s keeps to sink. Opts may be nil.
// Settings that could send a message twice as two are refused.
func NewWorker(s Store, sink Sink, opts *Options) (*Worker, error) {
	if s == nil || sink == nil {
		return nil, errors.New("outbox: a worker needs a store and a sink")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	w := &Worker{store: s, sink: sink, opts: o, wake: make(chan struct{}, 1), desk: newDesk()}
	_, _ = rand.Read(w.owner[:]) // it never fails
	return w, nil
}

// Wake tells the worker that something was committed, so that it looks at once. It
// costs nothing and may be called by anybody, at any time.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// sent is a call of the sink that has returned.
type sent struct {
	batch    []Delivery
	receipts []Receipt
}

// out is a delivery that has been sent, and how it is to end.
type out struct {
	d Delivery
	r Receipt
	e Ending
}

// judge says how a delivery ends.
func (w *Worker) judge(d *Delivery, r *Receipt) Ending {
	e := Ending{ID: d.ID, Shard: d.Shard, Group: d.Group, ProviderRef: r.ProviderRef}
	tries := d.Tries + 1
	switch {
	case r.Err == nil:
		e.Fate = Delivered
	case IsPermanent(r.Err), tries >= w.opts.MaxTries, d.Age >= w.opts.Horizon:
		e.Fate, e.Why = Buried, r.Err.Error()
	default:
		e.Fate, e.Why = Again, r.Err.Error()
		e.After = min(w.opts.Backoff.after(tries, r.After), w.opts.Horizon-d.Age) // if the receiver asks for more time than there is, the last try decides
	}
	if d.Settles != nil && e.Fate != Again {
		next := settled(*d.Settles, &e, r)
		e.Settle = &next
	}
	return e
}

// deliver calls the sink, bounded in time. Messages that cannot be read are not
// sent.
func (w *Worker) deliver(ctx context.Context, batch []Delivery) (s sent) {
	s = sent{batch: batch, receipts: make([]Receipt, len(batch))}
	readable := make([]Delivery, 0, len(batch))
	at := make([]int, 0, len(batch))
	for i := range batch {
		if err := cmp.Or(batch[i].Err, w.tooOld(&batch[i])); err != nil {
			s.receipts[i].Err = Permanent(err)
			continue
		}
		readable, at = append(readable, batch[i]), append(at, i)
	}
	if len(readable) == 0 {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	receipts, err := w.call(ctx, readable)
	for i, n := range at {
		switch {
		case err != nil:
			s.receipts[n].Err = err
		default:
			s.receipts[n] = receipts[i]
		}
	}
	return s
}

// tooOld says that a message must not be sent any more: a worker that has died may
// have sent it, and its receiver may have forgotten that.
func (w *Worker) tooOld(d *Delivery) error {
	if w.opts.Window < 0 || d.Age+w.opts.Lease+w.opts.Timeout < w.opts.Window {
		return nil
	}
	return fmt.Errorf("it was enqueued %v ago, and its receiver remembers keys for %v: if it was sent before, it would be a new one", d.Age.Round(time.Second), w.opts.Window)
}

// call calls the sink. One that panics, or says nothing of some message, has
// failed.
func (w *Worker) call(ctx context.Context, batch []Delivery) (receipts []Receipt, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the sink panicked: %v", p)
		}
	}()
	receipts = w.sink.Deliver(ctx, batch)
	if len(receipts) != len(batch) {
		return nil, fmt.Errorf("the sink returned %d receipts for %d messages", len(receipts), len(batch))
	}
	return receipts, nil
}

// lease takes and renews shards, and reports how many are held.
func (w *Worker) lease(ctx context.Context) (Holding, time.Time, error) {
	began := time.Now()
	held, err := w.store.Lease(ctx, w.owner, w.opts.Lease)
	return held, began.Add(w.opts.Lease), err
}

// may reports whether there is time to make a call before the shards may have
// another worker.
func (w *Worker) may() bool { return time.Until(w.until) > w.opts.Timeout }

// confirm tells the desk what became of endings. It returns those that are to be
// tried once more.
func (w *Worker) confirm(outs []out, ended []Ended) (again []out) {
	for i := range outs {
		o := &outs[i]
		switch err := ended[i].Err; {
		case err == nil:
			w.confirmed(o)
		case errors.Is(err, ErrFenced):
			w.stats.fenced.Add(1)
			w.desk.leave(&o.d)
		case errors.Is(err, retrysafe.ErrConflict) && o.e.Settle != nil:
			o.e.Settle = resettled(ended[i].Record, &o.e, &o.r)
			again = append(again, *o)
		case errors.Is(err, retrysafe.ErrBusy): // a transaction has the key
			again = append(again, *o)
		case o.e.Settle != nil && (errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)):
			w.opts.Logger.Error("outbox: the key that a message settles cannot be settled; the message ends without it", "message", o.d.ID, "error", err)
			o.e.Settle = nil
			again = append(again, *o)
		default:
			w.opts.Logger.Error("outbox: a message cannot be ended; it is sent again", "message", o.d.ID, "error", err)
			w.desk.putBack(&o.d)
		}
	}
	return again
}

func (w *Worker) confirmed(o *out) {
	switch o.e.Fate {
	case Delivered:
		w.stats.delivered.Add(1)
		w.desk.end(o.d.ID)
	case Again:
		w.stats.again.Add(1)
		w.desk.putBack(&o.d)
	case Buried:
		w.stats.buried.Add(1)
		w.opts.Logger.Error("outbox: a message is a dead letter", "message", o.d.ID, "topic", o.d.Topic, "tries", o.d.Tries+1, "error", o.e.Why)
		w.desk.end(o.d.ID)
		w.desk.next(&o.d)
	}
}

// RunOnce does all that is due, one step after the other, and returns how many
// messages were delivered. It holds its shards afterwards; [Worker.Release] gives
// them back.
func (w *Worker) RunOnce(ctx context.Context) (delivered int, err error) {
	before := w.stats.delivered.Load()
	defer func() { delivered = int(w.stats.delivered.Load() - before) }()
	held, until, err := w.lease(ctx)
	if err != nil {
		return 0, fmt.Errorf("outbox: lease: %w", err)
	}
	w.desk.hold(held.Shards)
	w.until = until
	for {
		w.desk.reads()
		list, err := w.store.Due(ctx, w.desk.shards(), w.opts.InFlight)
		if err != nil {
			return 0, fmt.Errorf("outbox: read: %w", err)
		}
		if w.desk.add(list) == 0 {
			return 0, nil
		}
		for w.may() {
			batch := w.desk.take(w.opts.Batch)
			if len(batch) == 0 {
				break
			}
			outs := w.judged(w.deliver(ctx, batch))
			for len(outs) > 0 {
				ended, err := w.store.End(context.WithoutCancel(ctx), endings(outs))
				if err != nil {
					w.desk = newDesk() // nobody can say; what is still there is sent again
					return 0, fmt.Errorf("outbox: end: %w", err)
				}
				outs = w.confirm(outs, ended)
			}
		}
		if !w.may() {
			return 0, nil
		}
	}
}

// judged says how each message of a call ends, and lets those go that wait behind
// one that its receiver has.
func (w *Worker) judged(s sent) []out {
	outs := make([]out, len(s.batch))
	for i := range s.batch {
		d, r := &s.batch[i], &s.receipts[i]
		outs[i] = out{*d, *r, w.judge(d, r)}
		if outs[i].e.Fate == Delivered {
			w.desk.next(d)
		}
	}
	return outs
}

func endings(outs []out) []Ending {
	list := make([]Ending, len(outs))
	for i := range outs {
		list[i] = outs[i].e
	}
	return list
}

// Release gives the worker's shards back, so that others need not wait for their
// terms to end.
func (w *Worker) Release(ctx context.Context) error {
	_, err := w.store.Lease(ctx, w.owner, 0)
	return err
}

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
	renew, poll := time.NewTimer(0), time.NewTimer(0)
	defer renew.Stop()
	defer poll.Stop()
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
			r.reading = false
			due = r.onRead(got)
			poll.Reset(r.idle)
		case got := <-r.sents:
			r.calls--
			r.outs = append(r.outs, r.judged(got)...)
		case got := <-r.ends:
			r.ending, r.leaving = false, 0
			due = r.onEnd(got) || due
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

// onRead takes in what was read, and reports whether to look again at once.
func (r *run) onRead(got read) bool {
	if got.err != nil {
		r.failed("read", got.err)
		r.desk.add(nil)
		return false
	}
	r.failures = 0
	if r.desk.add(got.list) > 0 {
		r.idle = busyPoll
		return false
	}
	r.idle = min(r.idle*2, r.opts.Poll)
	return false
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
	if r.ending || len(r.outs) == 0 {
		return
	}
	outs := r.outs
	r.outs, r.leaving, r.ending = nil, len(outs), true
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, r.opts.Lease)
		defer cancel()
		ended, err := r.store.End(ctx, endings(outs))
		if err == nil && len(ended) != len(outs) {
			err = fmt.Errorf("the store returned %d answers for %d endings", len(ended), len(outs))
		}
		r.ends <- endsDone{outs, ended, err}
	})
}

// onEnd takes in how endings ended, and reports whether to look again at once. If
// nobody can say, they are sent once more while the shard is held: to end what is
// ended changes nothing.
func (r *run) onEnd(got endsDone) bool {
	if got.err == nil {
		r.outs = append(r.confirm(got.outs, got.ended), r.outs...)
		return false
	}
	r.failed("end", got.err)
	for i := range got.outs {
		if o := &got.outs[i]; r.desk.holds(o.d.Shard) && time.Now().Before(r.until) {
			r.outs = append(r.outs, *o)
		} else {
			r.desk.leave(&o.d)
		}
	}
	time.Sleep(min(r.idle, 100*time.Millisecond)) // nothing else would help
	return false
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
		if time.Now().After(r.until) {
			r.desk.hold(nil)
		}
		return
	}
	r.desk.hold(got.held.Shards)
	r.until = got.until
}
