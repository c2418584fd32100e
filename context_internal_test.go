package retrysafe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The context of a store's step ends by its deadline and when it is ended, also for a store
// that asks for nothing but Err.
func TestStoreContextEndsForWhatOnlyAsksErr(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := func() *detachedContext {
			d := new(detachedContext)
			d.init(t.Context(), WallClock{}, time.Second)
			return d
		}
		asked := begun()
		if first, second := asked.Err(), asked.Err(); first != nil || second != nil {
			t.Errorf("Err = %v, %v before the deadline", first, second)
		}
		limited := begun()
		if until, ok := limited.Deadline(); !ok || !until.Equal(time.Now().Add(time.Second)) {
			t.Errorf("Deadline = %v, %v", until, ok)
		}
		time.Sleep(2 * time.Second)
		for name, d := range map[string]*detachedContext{"asked": asked, "limited": limited} {
			if err := d.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Err = %v after the deadline", name, err)
			}
		}
		ended := begun()
		ended.end(context.Canceled)
		if err := ended.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("Err = %v after the end", err)
		}
	})
}

// A store may keep what it derives from the context of a step: that ends with the step, and
// at the deadline that was set when a method first asked for it. A context that can end
// earlier is not said to end by its deadline only, and the values of one outlive its caller.
func TestStoreContextEndsWithItsStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		caller, hangUp := context.WithCancel(t.Context())
		e, err := New(nopStore{}, &Options{StoreTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		step := e.newStoreContext(caller)
		ended := step.Done()
		step.done()
		select {
		case <-ended:
		default:
			t.Error("the step is over, and its context goes on")
		}
		late := e.newStoreContext(caller)
		until, _ := late.Deadline()
		time.Sleep(500 * time.Millisecond)
		<-late.Done()
		if time.Now().After(until) {
			t.Errorf("Done comes %v after the deadline", time.Since(until))
		}
		values, ok := DeadlineOnly(late)
		if hangUp(); !ok || values.Err() != nil {
			t.Errorf("DeadlineOnly = %v, %t after the caller has gone", values, ok)
		}
		late.deadlineOnly = false
		if _, ok := DeadlineOnly(late); ok {
			t.Error("a context that a heartbeat may end is said to end by its deadline only")
		}
	})
}

type nopStore struct{ Store }

// renewing is a store that takes every swap.
type renewing struct{ Store }

func (renewing) Swap(ctx context.Context, w Write) (Record, error) {
	if _, ok := DeadlineOnly(ctx); ok {
		return Record{}, errors.New("the store is told that nothing but its deadline ends a heartbeat")
	}
	return w.Record, nil
}

// The context of a heartbeat is reused after it. What comes later must not end it: it may be
// that of another call's step by then.
func TestContextOfAHeartbeatIsForgottenWithIt(t *testing.T) {
	t.Parallel()
	e, err := New(renewing{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := e.execution(t.Context(), &Record{Ref: Ref{"tenant", "key"}, Version: RecordVersion, State: StateInProgress, Owner: Owner{1}, Attempt: 1})
	if err := x.renewByBeat(); err != nil || x.beat != nil {
		t.Errorf("renewed: %v; the context is kept: %t", err, x.beat != nil)
	}
}
