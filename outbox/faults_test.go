package outbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// hanging is an outbox one of whose steps returns only when its context has ended.
type hanging struct {
	outbox.Store
	step string
}

func (h hanging) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
	if h.step == "lease" && term > 0 || h.step == "release" && term == 0 {
		<-ctx.Done()
		return outbox.Lease{}, errHangs
	}
	return h.Store.Lease(ctx, worker, term)
}

func (h hanging) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	if h.step == "read" {
		<-ctx.Done()
		return nil, errHangs
	}
	return h.Store.Due(ctx, shards, limit)
}

func (h hanging) Ack(ctx context.Context, acks []outbox.Ack) ([]outbox.AckResult, error) {
	if h.step == "acknowledge" {
		<-ctx.Done()
		return nil, errHangs
	}
	return h.Store.Ack(ctx, acks)
}

var errHangs = errors.New("the store hangs")

// Each step of the store has a bound in time, and a step that fails is the error of the
// pass, or of the worker that could not give its shards back.
func TestStoreThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"lease", "read", "acknowledge", "release"} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			enqueue(t, s, message("a", "1"))
			w, err := outbox.NewWorker(hanging{s.Outbox(), step}, &receiver{}, nil)
			must(t, err)
			began := time.Now()
			if step == "release" {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				err = w.Run(ctx)
			} else {
				_, err = w.RunOnce(t.Context())
			}
			if took := time.Since(began); !errors.Is(err, errHangs) || took > 45*time.Second {
				t.Errorf("%s: %v after %v", step, err, took)
			}
		})
	}
}

// terse is an outbox that leaves out the answers to its first acknowledgements.
type terse struct {
	outbox.Store
	calls int
}

func (s *terse) Ack(ctx context.Context, acks []outbox.Ack) ([]outbox.AckResult, error) {
	results, err := s.Store.Ack(ctx, acks)
	if s.calls++; s.calls == 1 {
		return results[:len(results)-1], err
	}
	return results, err
}

// A store that does not answer to each acknowledgement is asked again.
func TestStoreThatSaysTooLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		enqueue(t, s, message("", "1"), message("", "2"))
		box := &terse{Store: s.Outbox()}
		w, err := outbox.NewWorker(box, r, nil)
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 2 || err != nil || box.calls != 2 || len(r.received()) != 2 {
			t.Errorf("RunOnce = %d, %v after %d calls; sent %v", n, err, box.calls, r.received())
		}
	})
}

// damaged is an outbox in which the message "damaged" cannot be read.
type damaged struct{ outbox.Store }

func (s damaged) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	list, err := s.Store.Due(ctx, shards, limit)
	for i := range list {
		if string(list[i].Payload) == "damaged" {
			list[i].Message, list[i].Err = outbox.Message{Group: list[i].Group}, outbox.ErrUnreadable
		}
	}
	return list, err
}

// A message that cannot be read is not sent: it becomes a dead letter, and its group goes
// on.
func TestMessageThatCannotBeReadIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		enqueue(t, s, message("a", "damaged"), message("a", "behind"))
		sink := batchSink(func(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
			if len(batch) == 0 {
				t.Error("the sink is given no message")
			}
			return r.Deliver(ctx, batch)
		})
		w, err := outbox.NewWorker(damaged{s.Outbox()}, sink, nil)
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 1 || err != nil || !slices.Equal(r.received(), []string{"behind"}) {
			t.Errorf("RunOnce = %d, %v; sent %q", n, err, r.received())
		}
		dead, err := s.Outbox().DeadLetters(t.Context(), 0, 10)
		if len(dead) != 1 || dead[0].Why != outbox.ErrUnreadable.Error() || err != nil {
			t.Errorf("dead letters: %+v, %v", dead, err)
		}
	})
}

// refusing is an outbox that refuses its first acknowledgement, without a reason that the
// worker knows.
type refusing struct {
	outbox.Store
	calls int
}

func (s *refusing) Ack(ctx context.Context, acks []outbox.Ack) ([]outbox.AckResult, error) {
	if s.calls++; s.calls == 1 {
		results := make([]outbox.AckResult, len(acks))
		results[0].Err = errors.New("no")
		return results, nil
	}
	return s.Store.Ack(ctx, acks)
}

// A message whose acknowledgement is refused is sent again, and holds up its group no
// longer than that.
func TestRefusedAcknowledgementDoesNotBlockTheGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := &receiver{fail: func(_ *outbox.Delivery, before int) (receipt outbox.Receipt) {
			if before == 0 {
				receipt.Err = errors.New("not now")
			}
			return receipt
		}}
		enqueue(t, s, message("a", "1"), message("a", "2"))
		running(t, &refusing{Store: s.Outbox()}, r, nil)
		time.Sleep(time.Minute)
		if got := r.received(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

// A worker renews its leases in time: there is no moment at which it may not send.
func TestWorkerSendsAtAnyTimeOfItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		running(t, s.Outbox(), r, nil)
		for n := range 70 {
			enqueue(t, s, message("a", "m"))
			time.Sleep(time.Second)
			if got := len(r.received()); got != n+1 {
				t.Fatalf("after %d s %d of %d messages are delivered", n+1, got, n+1)
			}
		}
	})
}

// A pass whose context has ended waits between two tries to store what was delivered.
func TestPassRestsWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		enqueue(t, s, message("a", "1"))
		ctx, stop := context.WithCancel(t.Context())
		calls, began := 0, time.Now()
		w, err := outbox.NewWorker(&failing{s.Outbox(), 3, func() {
			stop()
			if calls++; calls > 1 && time.Since(began) == 0 {
				t.Error("a store that fails is asked again at once")
			}
		}}, &receiver{}, nil)
		must(t, err)
		if n, err := w.RunOnce(ctx); n != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
	})
}
