package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestW17_WaitersShareOneLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute})
		x := b.begins(t)
		var wg sync.WaitGroup
		b.fault.Plan(nil)
		for range 64 {
			wg.Go(func() { b.replays(t, "waited for") })
		}
		time.Sleep(5 * time.Second)
		if n := b.fault.Count(faultstore.Load); n > 100 {
			t.Errorf("64 waiters looked %d times in 5 s", n)
		}
		must(t, x.Complete(t.Context(), answer("waited for")))
		wg.Wait()
	})
}

func TestWaitEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: 2 * time.Second})
		x := b.begins(t)
		start := time.Now()
		b.refused(t, retrysafe.ErrInFlight)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("waited %v, want 2s", took)
		}
		// A client that goes away waits no longer.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, _, err := b.Begin(ctx, call()); !errors.Is(err, retrysafe.ErrInFlight) || time.Since(start) > time.Second {
			t.Errorf("Begin = %v after %v", err, time.Since(start))
		}
		// An attempt that is released while another call waits is run by the waiter.
		done := make(chan *retrysafe.Execution)
		go func() {
			y, _, _ := b.Begin(t.Context(), call())
			done <- y
		}()
		time.Sleep(time.Second)
		must(t, x.Release(t.Context(), errors.New("never sent")))
		y := <-done
		if y == nil || y.Attempt() != 2 {
			t.Fatalf("the waiter did not take over: %v", y)
		}
		must(t, y.Complete(t.Context(), answer("second")))
		b.replays(t, "second")
	})
}

// However long a call has waited, the step that takes the key over has the store's whole
// time.
func TestWaiterTakesOverAfterALongWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Hour, Lease: time.Hour, MaxRun: 2 * time.Hour})
		x := b.begins(t)
		done := make(chan error)
		go func() {
			y, _, err := b.Begin(t.Context(), call())
			if err == nil {
				err = y.Complete(t.Context(), answer("second"))
			}
			done <- err
		}()
		time.Sleep(30 * time.Minute)
		must(t, x.Release(t.Context(), errors.New("never sent")))
		must(t, <-done)
		b.replays(t, "second")
	})
}

func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{
			MaxWaiters: 1, Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Second},
		})
		must(t, err)
		x, _, err := e.Begin(t.Context(), call())
		must(t, err)
		start := time.Now()
		go func() {
			if _, _, err := e.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) || time.Since(start) != time.Second {
				t.Errorf("the only waiter: %v after %v", err, time.Since(start))
			}
		}()
		synctest.Wait()
		if _, _, err := e.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) || time.Since(start) != 0 {
			t.Errorf("one waiter too many: %v after %v", err, time.Since(start))
		}
		time.Sleep(2 * time.Second)
		must(t, x.Release(t.Context(), nil))
	})
}

// A tenant that fills the room for waiters, on one key or on many, also where a guard
// has narrowed its scope, leaves room for the others.
func TestWaitersOfOneTenantLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	for room, half := range map[int]int{12: 6, 11: 5, 3: 1} { // an odd one is not for the first tenant
		synctest.Test(t, func(t *testing.T) { oneTenantLeavesRoom(t, room, half) })
	}
}

func oneTenantLeavesRoom(t *testing.T, room, half int) {
	t.Helper()
	e, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{
		MaxWaiters: room, Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute},
	})
	must(t, err)
	running := func(scope string) retrysafe.Call {
		c := call()
		c.Scope = scope
		x, _, err := e.Begin(t.Context(), c)
		must(t, err)
		t.Cleanup(func() { must(t, x.Release(context.WithoutCancel(t.Context()), nil)) })
		return c
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	waits := func(c retrysafe.Call) bool {
		ended := make(chan struct{})
		all.Go(func() {
			_, _, _ = e.Begin(ctx, c)
			close(ended)
		})
		synctest.Wait()
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	hostile := []retrysafe.Call{running("hostile"), running("hostile\x1fop\x1fPOST /a"), running("hostile\x1fby\x1fme")}
	waiting := 0
	for i := range 20 {
		if waits(hostile[i%len(hostile)]) {
			waiting++
		}
	}
	if waiting != half {
		t.Errorf("%d calls of one tenant wait, want %d of %d", waiting, half, room)
	}
	honest := running("honest")
	for range half / 2 {
		if !waits(honest) {
			t.Errorf("a call of another tenant does not wait, with room for %d", room)
		}
	}
	stop()
	all.Wait()
}

func TestAttach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		if _, err := b.Attach(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Attach to nothing = %v", err)
		}
		x := b.begins(t)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Attach(short, ref); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Attach for a second = %v", err)
		}
		got := make(chan retrysafe.Outcome)
		go func() {
			out, err := b.Attach(t.Context(), ref)
			must(t, err)
			got <- out
		}()
		time.Sleep(time.Minute)
		must(t, x.Complete(t.Context(), answer("attached")))
		if out := <-got; string(out.Body) != "attached" || !out.Replayed {
			t.Errorf("attached to %+v", out)
		}
		out, err := b.Peek(t.Context(), call())
		if err != nil || string(out.Body) != "attached" || b.saw(retrysafe.EventReplayed) != 1 {
			t.Errorf("Peek = %+v, %v; events %v", out, err, b.events)
		}
	})
	b := setup(t, retrysafe.Policy{})
	must(t, b.begins(t).Quarantine(t.Context(), errors.New("timed out")))
	if _, err := b.Attach(t.Context(), ref); !errors.Is(err, retrysafe.ErrUnknown) {
		t.Errorf("Attach to an unknown outcome = %v", err)
	}
	if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnknown) {
		t.Errorf("Peek at an unknown outcome = %v", err)
	}
	b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	if _, err := b.Attach(t.Context(), ref); !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("Attach without a store = %v", err)
	}
}

// A waiter that has seen the record learns that it was deleted since.
func TestWaiterLearnsThatTheRecordIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: time.Hour})
		b.begins(t)
		within, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		got := make(chan error)
		go func() {
			_, err := b.Attach(within, ref)
			got <- err
		}()
		time.Sleep(time.Minute)
		r := b.state(t).Update() // an operator forgets the key, and then a reaper deletes it
		r.State, r.Term = retrysafe.StateRetryable, 0
		_, err := b.mem.Swap(t.Context(), r)
		must(t, err)
		if n, err := b.mem.Purge(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("Purge = %d, %v", n, err)
		}
		if err := <-got; !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Attach = %v, want that there is no such key", err)
		}
	})
}

func TestPeekChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Peek at nothing = %v", err)
		}
		x := b.begins(t)
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
			t.Errorf("Peek in flight = %v", err)
		}
		b.crash(t)
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnknown) || b.state(t).State != retrysafe.StateInProgress {
			t.Errorf("Peek at a lapsed attempt = %v, record %s", err, b.state(t).State)
		}
		must(t, x.Release(t.Context(), nil))
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Peek at a released key = %v", err)
		}
	})
}

func TestRetryAfterFollowsTheOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: time.Minute})
		for i := range 20 {
			c := call()
			c.Key = fmt.Sprint("warm", i)
			_, err := b.Do(t.Context(), c, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				time.Sleep(4 * time.Second)
				return answer(""), nil
			})
			must(t, err)
		}
		x := b.begins(t)
		if got := b.refused(t, retrysafe.ErrInFlight).RetryAfter; got < 3*time.Second || got > 5*time.Second {
			t.Errorf("Retry-After is %v; the operation takes 4s, its lease is a minute", got)
		}
		must(t, x.Release(t.Context(), nil))
	})
}

// What Attach says of a record without an answer: only what provably did not happen, or is
// forgotten, is not found.
func TestAttachTellsWhatIsNotKnownFromWhatDidNotHappen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave func(*testing.T, *bundle)
		want  error
	}{
		"an attempt whose process died": {func(t *testing.T, b *bundle) { b.begins(t); b.crash(t) }, retrysafe.ErrUnknown},
		"work that no worker took":      {func(t *testing.T, b *bundle) { b.accepts(t); time.Sleep(2 * time.Hour) }, retrysafe.ErrAccepted},
		"a released attempt":            {func(t *testing.T, b *bundle) { must(t, b.begins(t).Release(t.Context(), nil)) }, retrysafe.ErrNotFound},
		"an answer that is forgotten": {func(t *testing.T, b *bundle) {
			must(t, b.begins(t).Complete(t.Context(), answer("old")))
			time.Sleep(2 * time.Hour)
		}, retrysafe.ErrNotFound},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Retention: time.Hour, MaxRun: time.Minute})
			c.leave(t, b)
			out, err := b.Attach(t.Context(), ref)
			if !errors.Is(err, c.want) || out.Body != nil {
				t.Errorf("%s: Attach = %+v, %v; want %v", name, out, err, c.want)
			}
		})
	}
}

// A process that dies writes nothing: those that wait for its attempt go on when its lease
// is over, although the record is the one they have seen.
func TestWaitersGoOnWhenTheLeaseOfADeadProcessIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 10 * time.Second, InFlight: retrysafe.InFlightWait, Wait: time.Minute})
		b.begins(t)
		start := time.Now()
		var waiters sync.WaitGroup
		waiters.Go(func() {
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := b.Attach(within, ref); !errors.Is(err, retrysafe.ErrUnknown) || time.Since(start) > 11*time.Second {
				t.Errorf("Attach = %v after %v", err, time.Since(start))
			}
		})
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.Write.State == retrysafe.StateInProgress {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		waiters.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		p := keyed
		p.Lease, p.InFlight, p.Wait = 10*time.Second, retrysafe.InFlightWait, time.Minute
		b := setup(t, p)
		b.begins(t)
		start := time.Now()
		heir := make(chan *retrysafe.Execution, 1)
		go func() {
			x, _, err := b.Begin(t.Context(), call())
			if err != nil || time.Since(start) > 11*time.Second {
				t.Errorf("Begin = %v after %v", err, time.Since(start))
			}
			heir <- x
		}()
		b.crash(t)
		x := <-heir
		if x == nil || x.Attempt() != 2 {
			t.Fatalf("the waiter did not take over: %v", x)
		}
		must(t, x.Complete(t.Context(), answer("second")))
	})
}

// unreadable is a store that has the record and cannot decode it.
type unreadable struct{ retrysafe.Store }

func (unreadable) Load(context.Context, retrysafe.Ref) (retrysafe.Record, error) {
	return retrysafe.Record{}, retrysafe.ErrUnreadable
}

func (unreadable) Create(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, retrysafe.ErrUnreadable
}

// A record that the store cannot decode is refused as such: a retry will not find it better.
// The store has answered, so it counts as healthy for other keys.
func TestCallsReportARecordThatTheStoreCannotDecode(t *testing.T) {
	t.Parallel()
	e, err := retrysafe.New(unreadable{memstore.New(nil)}, nil)
	must(t, err)
	if _, err := e.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnreadable) || errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("Peek = %v", err)
	}
	if _, err := e.Attach(t.Context(), ref); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("Attach = %v", err)
	}
	for range 20 {
		if x, _, err := e.Begin(t.Context(), call()); x != nil || !errors.Is(err, retrysafe.ErrUnreadable) || errors.Is(err, retrysafe.ErrUnavailable) || !e.Healthy() {
			t.Fatalf("Begin = %v, %v; healthy: %v", x, err, e.Healthy())
		}
	}
}

// While one waiter's load hangs, or loads fail, the others have learnt nothing: they wait on.
// The attempt that is settled in this process reaches them all, also the one whose load fails
// after it.
func TestWaitersGoOnWhileALoadHangs(t *testing.T) {
	t.Parallel()
	for _, fault := range []faultstore.Fault{faultstore.Hang, faultstore.LoseRequest} {
		synctest.Test(t, func(t *testing.T) { waitersGoOn(t, fault) })
	}
}

func waitersGoOn(t *testing.T, fault faultstore.Fault) {
	t.Helper()
	b := setup(t, retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute})
	x := b.begins(t)
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Load {
			return fault
		}
		return faultstore.None
	})
	var waiters sync.WaitGroup
	for range 3 {
		waiters.Go(func() {
			_, out, err := b.Begin(t.Context(), call())
			if out == nil || string(out.Body) != "waited for" {
				t.Errorf("Begin = %+v, %v; want the answer", out, err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	must(t, x.Complete(t.Context(), answer("waited for")))
	waiters.Wait()
}

// becomesUnreadable is a store that cannot decode any record from some time on.
type becomesUnreadable struct {
	retrysafe.Store
	loads atomic.Int32
}

func (s *becomesUnreadable) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if s.loads.Add(1) > 3 {
		return retrysafe.Record{}, retrysafe.ErrUnreadable
	}
	return s.Store.Load(ctx, ref)
}

// A waiter learns that the record which it waits for cannot be decoded any more: it does not
// wait until its own time is over.
func TestWaiterLearnsThatTheRecordCannotBeDecoded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, err := retrysafe.New(&becomesUnreadable{Store: memstore.New(nil)}, nil)
		must(t, err)
		x, _, err := e.Begin(t.Context(), call())
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.Attach(ctx, ref); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("Attach = %v", err)
		}
		must(t, x.Complete(t.Context(), answer("paid")))
	})
}

// Accepted work is under way: Attach waits for its answer, too.
func TestAttachWaitsForAcceptedWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		r := b.accepts(t)
		go func() {
			time.Sleep(time.Minute)
			x, err := b.TakeUp(t.Context(), r)
			must(t, err)
			time.Sleep(time.Second)
			must(t, x.Complete(t.Context(), answer("paid")))
		}()
		if out, err := b.Attach(t.Context(), ref); err != nil || string(out.Body) != "paid" {
			t.Errorf("Attach = %+v, %v", out, err)
		}
	})
}

// Work that goes back to the queue is still under way.
func TestAttachWaitsForWorkThatWaitsForAWorkerAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		first, err := b.TakeUp(t.Context(), b.accepts(t))
		must(t, err)
		go func() {
			time.Sleep(time.Second)
			must(t, first.Release(t.Context(), nil))
			time.Sleep(time.Second)
			second, err := b.TakeUp(t.Context(), b.state(t))
			must(t, err)
			must(t, second.Complete(t.Context(), answer("paid")))
		}()
		if out, err := b.Attach(t.Context(), ref); err != nil || string(out.Body) != "paid" {
			t.Errorf("Attach = %+v, %v", out, err)
		}
	})
}

// A waiter that has seen a heartbeat goes on looking: the answer may come from another
// process, which notifies no waiter of this one.
func TestWaiterSeesWhatFollowsAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		go func() {
			time.Sleep(time.Second)
			must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "alive"}))
			time.Sleep(time.Second)
			paid := answer("paid")
			w := b.state(t).Update()
			w.State, w.Result, w.Term = retrysafe.StateCompleted, &paid, time.Hour
			_, err := b.mem.Swap(t.Context(), w)
			must(t, err)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if out, err := b.Attach(ctx, ref); err != nil || string(out.Body) != "paid" {
			t.Errorf("Attach = %+v, %v", out, err)
		}
		time.Sleep(time.Minute) // its heartbeat finds out
	})
}
