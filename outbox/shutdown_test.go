package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// failing is an outbox whose acknowledgements fail, as often as it is told, and are not
// applied then. It reports each failure.
type failing struct {
	outbox.Store
	times  int
	failed func()
}

func (f *failing) Ack(ctx context.Context, acks []outbox.Ack) ([]outbox.AckResult, error) {
	if f.times--; f.times >= 0 {
		f.failed()
		return nil, errors.New("the store is away")
	}
	return f.Store.Ack(ctx, acks)
}

// A worker that is told to stop while the store fails stores what its receivers have
// said when the store is back, and sends nothing again.
func TestRunStopsWithEveryReceiptStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		enqueue(t, s, message("a", "1"), message("", "2"))
		ctx, stop := context.WithCancel(t.Context())
		w, err := outbox.NewWorker(&failing{s.Outbox(), 4, stop}, r, nil)
		must(t, err)
		must(t, w.Run(ctx))
		if d, _ := s.Outbox().Depth(t.Context()); d.Waiting != 0 || len(r.received()) != 2 {
			t.Errorf("after the worker has stopped %d messages wait that were delivered; delivered were %v", d.Waiting, r.received())
		}
	})
}

// listening is an outbox that counts the workers that it tells of commits.
type listening struct {
	*memstore.Outbox
	workers int
}

func (l *listening) NotifyCommits(wake func()) (stop func()) {
	l.workers++
	stops := l.Outbox.NotifyCommits(wake)
	return func() { l.workers--; stops() }
}

// A worker that is told to stop waits for the calls of its sink, whose context goes on.
// Afterwards it is told of no commit, and other workers need not wait for its shards.
func TestShutdownLetsTheSinkFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		enqueue(t, s, message("a", "1"))
		ctx, stop := context.WithCancel(t.Context())
		sink := outbox.SinkFunc(func(ctx context.Context, _ *outbox.Delivery) outbox.Receipt {
			stop()
			select {
			case <-time.After(time.Second):
				return outbox.Receipt{}
			case <-ctx.Done():
				return outbox.Receipt{Err: ctx.Err()}
			}
		})
		box := &listening{Outbox: s.Outbox()}
		w, err := outbox.NewWorker(box, sink, nil)
		must(t, err)
		must(t, w.Run(ctx))
		if got := w.Stats(); got != (outbox.Stats{Delivered: 1}) || box.workers != 0 {
			t.Errorf("a call that was under way ended as %+v; %d workers are told of commits", got, box.workers)
		}
		enqueue(t, s, message("a", "2"))
		other, err := outbox.NewWorker(s.Outbox(), &receiver{}, nil)
		must(t, err)
		if n, err := other.RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("at once another worker delivers %d, %v", n, err)
		}
	})
}

// detached notes whether acknowledgements come with a context that goes on.
type detached struct {
	outbox.Store
	ended error // of a context that acknowledgements came with
}

func (d *detached) Ack(ctx context.Context, acks []outbox.Ack) ([]outbox.AckResult, error) {
	d.ended = ctx.Err()
	if d.ended != nil {
		return nil, d.ended
	}
	return d.Store.Ack(ctx, acks)
}

// What a receiver has said is stored also if the context of RunOnce has ended meanwhile:
// the message would be sent again.
func TestRunOnceStoresWhatTheReceiverSaidAfterItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		enqueue(t, s, message("a", "1"))
		ctx, stop := context.WithCancel(t.Context())
		sink := outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt {
			stop()
			return outbox.Receipt{}
		})
		box := &detached{Store: s.Outbox()}
		w, err := outbox.NewWorker(box, sink, nil)
		must(t, err)
		if n, err := w.RunOnce(ctx); n != 1 || !errors.Is(err, context.Canceled) || box.ended != nil {
			t.Errorf("RunOnce = %d, %v; the acknowledgement came with a context that had ended: %v", n, err, box.ended)
		}
	})
}
