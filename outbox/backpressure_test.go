package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// braked enqueues through a Backpressure, ignores its error, and reports whether the
// transaction committed all the same.
func braked(t *testing.T, s *memstore.Store, b *outbox.Backpressure, messages ...outbox.Message) (committed bool, err error) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	must(t, err)
	err = b.On(tx).Enqueue(t.Context(), messages...)
	return tx.Commit(t.Context()) == nil, err
}

// TestW69_FullOutboxRefuses: what fills it is told so and cannot commit; what is in
// it stays.
func TestW69_FullOutboxRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		b, err := outbox.NewBackpressure(s.Outbox(), &outbox.BackpressureOptions{MaxWaiting: 10, MaxDead: 2})
		must(t, err)
		for n := range 10 {
			if ok, err := braked(t, s, b, message("a", fmt.Sprint(n))); err != nil || !ok {
				t.Fatalf("message %d: %v", n, err)
			}
		}
		if ok, err := braked(t, s, b, message("a", "one too many")); !errors.Is(err, outbox.ErrFull) || ok {
			t.Errorf("the eleventh: %v, committed %t", err, ok)
		}
		if err := b.Check(t.Context()); !errors.Is(err, outbox.ErrFull) {
			t.Error(err)
		}
		r := &receiver{}
		w, err := outbox.NewWorker(s.Outbox(), r, nil)
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 10 || err != nil {
			t.Errorf("%d delivered, %v", n, err)
		}
		time.Sleep(2 * time.Second) // it counts again
		r.fail = func(*outbox.Delivery, int) outbox.Receipt {
			return outbox.Receipt{Err: outbox.Permanent(errors.New("no"))}
		}
		if ok, err := braked(t, s, b, message("a", "x"), message("b", "y")); err != nil || !ok {
			t.Errorf("after all were delivered: %v", err)
		}
		_, err = w.RunOnce(t.Context())
		must(t, err)
		time.Sleep(2 * time.Second)
		if ok, err := braked(t, s, b, message("a", "z")); !errors.Is(err, outbox.ErrFull) || ok {
			t.Errorf("beside two dead letters: %v, committed %t", err, ok)
		}
		if d, _ := s.Outbox().Depth(t.Context()); d.Waiting != 0 || d.Dead != 2 {
			t.Errorf("%+v", d)
		}
	})
}

// Messages that are enqueued together count one by one, each once, and those that were
// enqueued without the back-pressure count from the next count on.
func TestBrakeCountsEachMessageOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		b, err := outbox.NewBackpressure(s.Outbox(), &outbox.BackpressureOptions{MaxWaiting: 10})
		must(t, err)
		batch := func(n int, full bool) {
			t.Helper()
			if ok, err := braked(t, s, b, slices.Repeat([]outbox.Message{message("", "m")}, n)...); ok == full || errors.Is(err, outbox.ErrFull) != full {
				t.Fatalf("%d more: %v, committed %t", n, err, ok)
			}
		}
		batch(11, true)
		batch(4, false)
		batch(7, true)
		time.Sleep(2 * time.Second) // it counts again
		batch(4, false)
		batch(3, true)
		enqueue(t, s, message("", "beside it"), message("", "beside it"))
		time.Sleep(2 * time.Second)
		batch(1, true)
	})
}

// A negative bound is none.
func TestBrakeWithoutBounds(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	b, err := outbox.NewBackpressure(deep{}, &outbox.BackpressureOptions{MaxWaiting: -1, MaxDead: -1})
	must(t, err)
	if ok, err := braked(t, s, b, message("a", "m")); err != nil || !ok {
		t.Errorf("%v, committed %t", err, ok)
	}
	for _, o := range []outbox.BackpressureOptions{{MaxWaiting: -1}, {MaxDead: -1}} { // the other bound is the default
		b, err := outbox.NewBackpressure(deep{}, &o)
		must(t, err)
		if err := b.Check(t.Context()); !errors.Is(err, outbox.ErrFull) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// deep reports more than the default bounds.
type deep struct{}

func (deep) Depth(context.Context) (outbox.Depth, error) {
	return outbox.Depth{Waiting: 2_000_000, Dead: 20_000}, nil
}

type broken struct{}

func (broken) Depth(context.Context) (outbox.Depth, error) {
	return outbox.Depth{}, errors.New("no connection")
}

// failingDepth counts, except when it is told to fail.
type failingDepth struct {
	outbox.DepthReporter
	fails *bool
}

func (f failingDepth) Depth(ctx context.Context) (outbox.Depth, error) {
	if *f.fails {
		return outbox.Depth{}, errors.New("no connection")
	}
	return f.DepthReporter.Depth(ctx)
}

// A count that fails after others is tried again: neither is the outbox full for ever,
// nor open to all.
func TestBrakeCountsAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, fails := memstore.New(nil), false
		b, err := outbox.NewBackpressure(failingDepth{s.Outbox(), &fails}, &outbox.BackpressureOptions{MaxWaiting: 1, Every: time.Second})
		must(t, err)
		if ok, err := braked(t, s, b, message("a", "first")); err != nil || !ok {
			t.Fatalf("the first: %v, committed %t", err, ok)
		}
		fails = true
		time.Sleep(2 * time.Second)
		if _, err := braked(t, s, b, message("a", "second")); err == nil || errors.Is(err, outbox.ErrFull) {
			t.Errorf("while the messages cannot be counted: %v", err)
		}
		fails = false
		w, err := outbox.NewWorker(s.Outbox(), &receiver{}, nil)
		must(t, err)
		_, err = w.RunOnce(t.Context())
		must(t, err)
		time.Sleep(2 * time.Second)
		if ok, err := braked(t, s, b, message("a", "third")); err != nil || !ok {
			t.Errorf("after the first was delivered: %v, committed %t", err, ok)
		}
	})
}

func TestBrakeThatCannotCountTakesNothing(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	b, err := outbox.NewBackpressure(broken{}, nil)
	must(t, err)
	if ok, err := braked(t, s, b, message("a", "m")); err == nil || errors.Is(err, outbox.ErrFull) || ok {
		t.Errorf("%v, committed %t", err, ok)
	}
	if _, err := outbox.NewBackpressure(nil, nil); err == nil {
		t.Error("a Backpressure without a DepthReporter")
	}
	if _, err := outbox.NewBackpressure(broken{}, &outbox.BackpressureOptions{Every: -1}); err == nil {
		t.Error("a negative option")
	}
}

// counter is a depth that is counted while it is told to wait.
type counter struct {
	depth outbox.Depth
	wait  chan struct{} // nil: it does not wait
}

func (c *counter) Depth(context.Context) (outbox.Depth, error) {
	if c.wait != nil {
		<-c.wait
	}
	return c.depth, nil
}

// pending is a transaction that notes how it was rolled back.
type pending struct {
	outbox.Enqueuer
	rolledBack int
	ended      error // of the context that Rollback came with
}

var errRollback = errors.New("the rollback failed")

func (p *pending) Enqueue(context.Context, ...outbox.Message) error { return nil }
func (p *pending) Rollback(ctx context.Context) error {
	p.rolledBack++
	p.ended = ctx.Err()
	return errRollback
}

// Before the first count nothing is taken. Later ones hold up no caller, and what is
// enqueued meanwhile counts beside them.
func TestBrakeDuringACount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{outbox.Depth{Waiting: 2}, make(chan struct{})}
		b, err := outbox.NewBackpressure(c, &outbox.BackpressureOptions{MaxWaiting: 3, Every: time.Second})
		must(t, err)
		checked := make(chan error, 2)
		check := func() { checked <- b.Check(t.Context()) }
		go check()
		synctest.Wait()
		go check()
		synctest.Wait()
		if len(checked) != 0 {
			t.Errorf("before the first count Check = %v", <-checked)
		}
		close(c.wait)
		for range 2 {
			must(t, <-checked)
		}

		time.Sleep(2 * time.Second)
		c.wait = make(chan struct{})
		go check()
		synctest.Wait()
		must(t, b.On(&pending{}).Enqueue(t.Context(), message("", "during the count")))
		close(c.wait)
		if err := <-checked; !errors.Is(err, outbox.ErrFull) {
			t.Errorf("of three messages one was enqueued during the count, and Check = %v", err)
		}
	})
}

// A transaction that is refused is rolled back also if the context of its caller has ended,
// and the caller learns if that fails.
func TestBrakeRollsBackAfterItsContext(t *testing.T) {
	t.Parallel()
	b, err := outbox.NewBackpressure(deep{}, nil)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	tx := &pending{}
	err = b.On(tx).Enqueue(ctx, message("a", "m"))
	if !errors.Is(err, outbox.ErrFull) || !errors.Is(err, errRollback) || tx.rolledBack != 1 || tx.ended != nil {
		t.Errorf("Enqueue = %v; rolled back %d times, with a context that has ended: %v", err, tx.rolledBack, tx.ended)
	}
}
