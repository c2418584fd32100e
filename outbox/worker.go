package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

// A Worker delivers the messages of an outbox. Any number of workers may run over one
// store, in any number of processes: the lease of a shard is one worker's, and the
// acknowledgements of a worker that has lost it are refused. Such a worker may send a
// message once more before it knows.
//
// One worker has one [Worker.Run] or [Worker.RunOnce] at a time.
type Worker struct {
	store Store
	quick QuickReader // the store, if it is one
	sink  Sink
	opts  Options
	owner retrysafe.Owner
	wake  chan struct{}
	stats stats
}

// stats are the counters of a worker.
type stats struct{ delivered, again, buried, fenced atomic.Int64 }

// Stats count the acknowledgements of a worker since it was made: messages delivered,
// to be sent again, and buried, and acknowledgements that were refused because another
// worker holds the shard.
type Stats struct{ Delivered, Again, Buried, Fenced int64 }

// Stats returns what the worker has done.
func (w *Worker) Stats() Stats {
	return Stats{w.stats.delivered.Load(), w.stats.again.Load(), w.stats.buried.Load(), w.stats.fenced.Load()}
}

// NewWorker returns a worker that delivers the messages of s to sink. Opts may be nil.
// Settings under which a receiver could take a message that is sent again for a new one
// are refused.
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
	if err := o.checkReceipts(s); err != nil {
		return nil, err
	}
	w := &Worker{store: s, sink: sink, opts: o, wake: make(chan struct{}, 1)}
	w.quick, _ = s.(QuickReader)
	_, _ = rand.Read(w.owner[:]) // it never fails
	return w, nil
}

// Wake tells the worker that a message was committed, so that [Worker.Run] reads at once
// instead of at the next poll. It never blocks, and may be called at any time and by any
// goroutine. After a commit by the store itself it need not be called, if the store is a
// [CommitNotifier].
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// RunOnce does all that is due, one step after the other, and returns how many messages
// were delivered. It ends early if its lease does, or ctx; an error says what was left
// undone. What receivers have said is stored all the same, for as long as the lease
// lasts. RunOnce holds its shards afterwards; [Worker.Release] gives them back.
//
// It performs the same loop as [Worker.Run] on the goroutine of its caller, and starts
// nothing.
func (w *Worker) RunOnce(ctx context.Context) (delivered int, err error) {
	before := w.stats.delivered.Load()
	l := newPass(w)
	for {
		if ctx.Err() != nil {
			l.stop()
		}
		now := w.opts.Clock.Now()
		if a := l.next(now); a != nil {
			a.perform(ctx, w)
			l.finish(a, w.opts.Clock.Now())
			continue
		}
		if rest := l.wakeAt(now); len(l.acks) > 0 {
			_ = w.opts.Clock.Sleep(context.WithoutCancel(ctx), rest.Sub(now))
			continue
		}
		if !l.readMore(now) {
			return int(w.stats.delivered.Load() - before), cmp.Or(l.err, ctx.Err())
		}
	}
}

// Release gives the worker's shards back, so that other workers need not wait until its
// lease ends.
func (w *Worker) Release(ctx context.Context) error {
	_, err := w.store.Lease(ctx, w.owner, 0)
	return err
}
