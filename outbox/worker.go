package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deadline"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

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
		e.After = min(w.opts.Backoff.after(tries, r.After, w.opts.Rand()), w.opts.Horizon-d.Age) // if the receiver asks for more time than there is, the last try decides
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
	ctx, cancel := deadline.After(ctx, w.opts.Clock, w.opts.Timeout)
	defer cancel()
	failpoint.Hit("outbox.delivering")
	receipts, err := w.call(ctx, readable)
	failpoint.Hit("outbox.delivered")
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
	began := w.opts.Clock.Now()
	held, err := w.store.Lease(ctx, w.owner, w.opts.Lease)
	return held, began.Add(w.opts.Lease), err
}

// may reports whether there is time to make a call before the shards may have
// another worker.
func (w *Worker) may() bool { return w.until.Sub(w.opts.Clock.Now()) > w.opts.Timeout }

// confirm tells the desk what became of endings. It returns those that are to be
// tried once more, and whether that can wait a moment: somebody has the key.
func (w *Worker) confirm(outs []out, ended []Ended) (again []out, busy bool) {
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
			again, busy = append(again, *o), true
		case o.e.Settle != nil && (errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)):
			w.opts.Logger.Error("outbox: the key that a message settles cannot be settled; the message ends without it", "message", o.d.ID, "error", err)
			o.e.Settle = nil
			again = append(again, *o)
		default:
			w.opts.Logger.Error("outbox: a message cannot be ended; it is sent again", "message", o.d.ID, "error", err)
			w.desk.leave(&o.d)
		}
	}
	return again, busy
}

func (w *Worker) confirmed(o *out) {
	switch o.e.Fate {
	case Delivered:
		w.stats.delivered.Add(1)
		w.desk.end(o.d.ID)
	case Again:
		w.stats.again.Add(1)
		w.desk.leave(&o.d)
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
	failpoint.Hit("outbox.leased")
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
			if err := w.endAll(context.WithoutCancel(ctx), w.judged(w.deliver(ctx, batch))); err != nil {
				w.desk = newDesk() // nobody can say; what is still there is sent again
				return 0, fmt.Errorf("outbox: end: %w", err)
			}
		}
		if !w.may() {
			return 0, nil
		}
	}
}

// endRest is how long to wait before endings that could not be stored are tried
// again.
const endRest = 20 * time.Millisecond

// endAll ends what has been delivered, for as long as the shards are held.
func (w *Worker) endAll(ctx context.Context, outs []out) error {
	for {
		ended, err := w.end(ctx, outs)
		if err != nil {
			return err
		}
		again, busy := w.confirm(outs, ended)
		if len(again) == 0 {
			return nil
		}
		if !w.opts.Clock.Now().Before(w.until) {
			return errors.New("a transaction holds the key that a message settles for longer than the shard is held")
		}
		if busy {
			_ = w.opts.Clock.Sleep(ctx, endRest) // it does not end before the lease does
		}
		outs = again
	}
}

// end hands endings to the store, bounded in time.
func (w *Worker) end(ctx context.Context, outs []out) ([]Ended, error) {
	ctx, cancel := deadline.After(ctx, w.opts.Clock, w.opts.Lease)
	defer cancel()
	ended, err := w.store.End(ctx, endings(outs))
	failpoint.Hit("outbox.ended")
	if err == nil && len(ended) != len(outs) {
		err = fmt.Errorf("the store returned %d answers for %d endings", len(ended), len(outs))
	}
	return ended, err
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
