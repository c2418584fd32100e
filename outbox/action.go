package outbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/internal/deadline"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// An action is one call of the store or the sink that a [loop] has decided on.
type action interface {
	// perform makes the call, bounded in time, and keeps in the action how it ended.
	perform(ctx context.Context, w *Worker)
}

// leaseAction takes and renews shards.
type leaseAction struct {
	lease Lease
	until time.Time // when it ends, by the worker's own clock
	err   error
}

func (a *leaseAction) perform(ctx context.Context, w *Worker) {
	ctx, cancel := deadline.After(ctx, w.opts.Clock, w.opts.Lease/2)
	defer cancel()
	a.until = w.opts.Clock.Now().Add(w.opts.Lease) // counted from before the store does
	a.lease, a.err = w.store.Lease(ctx, w.owner, w.opts.Lease)
	failpoint.Hit("outbox.leased")
}

// readAction reads messages that are due: all of them, or quickly those that the worker
// does not know.
type readAction struct {
	shards []Shard
	limit  int
	quick  bool
	known  []int64

	list []Delivery
	all  bool // a quick read has left out none
	err  error
}

func (a *readAction) perform(ctx context.Context, w *Worker) {
	ctx, cancel := deadline.After(ctx, w.opts.Clock, w.opts.Lease)
	defer cancel()
	began := w.opts.Clock.Now()
	if a.quick {
		a.list, a.all, a.err = w.quick.DueExcept(ctx, a.shards, a.known, a.limit)
	} else {
		a.list, a.err = w.store.Due(ctx, a.shards, a.limit)
	}
	if a.err != nil {
		a.list = nil
	}
	for i := range a.list {
		a.list[i].readAt = began
	}
}

// ackAction stores acknowledgements.
type ackAction struct {
	acks []*pendingAck

	results []AckResult
	err     error
}

// perform stores what the receivers said, also if the caller's context has ended
// meanwhile.
func (a *ackAction) perform(ctx context.Context, w *Worker) {
	ctx, cancel := deadline.After(context.WithoutCancel(ctx), w.opts.Clock, w.opts.Lease)
	defer cancel()
	a.results, a.err = w.store.Ack(ctx, acksOf(a.acks))
	failpoint.Hit("outbox.ended")
	if a.err == nil && len(a.results) != len(a.acks) {
		a.err = fmt.Errorf("the store returned %d answers for %d acknowledgements", len(a.results), len(a.acks))
	}
}

// sendAction sends a batch.
type sendAction struct {
	batch []*Delivery

	receipts []Receipt
}

// perform calls the sink. Messages that cannot be read, or are too old, are not sent.
func (a *sendAction) perform(ctx context.Context, w *Worker) {
	batch := make([]Delivery, 0, len(a.batch))
	var refused []error // by the index in a.batch; nil: none is
	for i, d := range a.batch {
		err := cmp.Or(d.Err, tooOld(&w.opts, d))
		if err == nil {
			batch = append(batch, *d)
			continue
		}
		if refused == nil {
			refused = make([]error, len(a.batch))
		}
		refused[i] = Permanent(err)
	}
	var receipts []Receipt
	if len(batch) > 0 {
		receipts = sendBatch(ctx, w, batch)
	}
	if refused == nil {
		a.receipts = receipts
		return
	}
	a.receipts = make([]Receipt, len(a.batch))
	for i, err := range refused {
		if err != nil {
			a.receipts[i].Err = err
			continue
		}
		a.receipts[i], receipts = receipts[0], receipts[1:]
	}
}

// sendBatch calls the sink, and returns a receipt for each message.
func sendBatch(ctx context.Context, w *Worker, batch []Delivery) []Receipt {
	ctx, cancel := deadline.After(ctx, w.opts.Clock, w.opts.Timeout)
	defer cancel()
	spans := startSpans(ctx, w.opts.Tracer, batch)
	failpoint.Hit("outbox.delivering")
	receipts, err := callSink(ctx, w.sink, batch)
	failpoint.Hit("outbox.delivered")
	endSpans(w.opts.Tracer, spans, batch, receipts, err)
	if err != nil {
		receipts = make([]Receipt, len(batch))
		for i := range receipts {
			receipts[i].Err = err
		}
	}
	return receipts
}

// tooOld returns why a message must not be sent any more: a worker that has died may
// have sent it, and its receiver may have forgotten the key since. A message may have
// waited here for long, behind others of its group or for a slow sink.
func tooOld(opts *Options, d *Delivery) error {
	age := d.Age + opts.Clock.Now().Sub(d.readAt)
	if opts.Window < 0 || age+opts.Lease+opts.Timeout < opts.Window {
		return nil
	}
	return fmt.Errorf("it was enqueued %v ago, and its receiver remembers keys for %v: if it was sent before, the receiver would take it for a new one", age.Round(time.Second), opts.Window)
}

// callSink calls the sink. A sink that panics, or returns another number of receipts,
// has failed.
func callSink(ctx context.Context, sink Sink, batch []Delivery) (receipts []Receipt, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the sink panicked: %v", p)
		}
	}()
	receipts = sink.Deliver(ctx, batch)
	if len(receipts) != len(batch) {
		return nil, fmt.Errorf("the sink returned %d receipts for %d messages", len(receipts), len(batch))
	}
	return receipts, nil
}
