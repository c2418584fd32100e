package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestInvalidCallsReserveNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	long := strings.Repeat("k", 2000)
	for _, c := range []retrysafe.Call{
		{Ref: retrysafe.Ref{Key: "k"}}, {Ref: retrysafe.Ref{Scope: "s"}}, {Ref: retrysafe.Ref{Scope: "s", Key: long}},
		{Ref: retrysafe.Ref{Scope: long, Key: "k"}}, {Ref: ref, Retention: -1},
	} {
		if _, _, err := b.Begin(t.Context(), c); !errors.Is(err, retrysafe.ErrInvalidCall) {
			t.Errorf("Begin(%.20v) = %v, want ErrInvalidCall", c.Ref, err)
		}
		if _, err := b.Peek(t.Context(), c); !errors.Is(err, retrysafe.ErrInvalidCall) {
			t.Errorf("Peek(%.20v) = %v, want ErrInvalidCall", c.Ref, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Begin(gone, call()); !errors.Is(err, context.Canceled) {
		t.Errorf("Begin of a client that has gone = %v", err)
	}
	if n := b.fault.Count(faultstore.Create); n != 0 {
		t.Errorf("%d reservations were sent, want none", n)
	}
}

func TestW13_ThousandFirstRequestsRunOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	var runs, replays, conflicts atomic.Int32
	var wg sync.WaitGroup
	release := make(chan struct{})
	for range 1000 {
		wg.Go(func() {
			out, err := b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				runs.Add(1)
				<-release
				return answer("one"), nil
			})
			var refused *retrysafe.RefusedError
			switch {
			case err == nil && string(out.Body) == "one":
				replays.Add(1)
			case errors.Is(err, retrysafe.ErrInFlight) && errors.As(err, &refused) && refused.RetryAfter > 0:
				if conflicts.Add(1) == 500 {
					close(release)
				}
			default:
				t.Errorf("Do = %+v, %v", out, err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 || replays.Load()+conflicts.Load() != 1000 {
		t.Errorf("%d runs, %d answers, %d conflicts", runs.Load(), replays.Load(), conflicts.Load())
	}
}

func TestW14_ReservationWhoseReplyIsLostRecognisesItself(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	b.fault.Plan(faultstore.FailOnce(faultstore.Create, 1, faultstore.LoseReply))
	x := b.begins(t)
	if x.Attempt() != 1 || b.fault.Count(faultstore.Create) != 2 {
		t.Errorf("attempt %d after %d creates", x.Attempt(), b.fault.Count(faultstore.Create))
	}
	must(t, x.Complete(t.Context(), answer("once")))
	b.replays(t, "once")
}

// A reservation whose lease is over when the store confirms it is not run under that lease:
// another process may have taken it. It is claimed once more.
func TestW14_ReservationThatIsConfirmedTooLateIsClaimedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 10 * time.Millisecond}) // as long as the pause before the second try
		b.fault.Plan(faultstore.FailOnce(faultstore.Create, 1, faultstore.LoseReply))
		x := b.begins(t)
		if r := b.state(t); x.Attempt() != 2 || r.Due() {
			t.Errorf("attempt %d runs under a lease until %v", x.Attempt(), r.Deadline)
		}
		must(t, x.Complete(t.Context(), answer("once")))
		b.replays(t, "once")
	})
}

func TestW14_ReservationThatCannotBeConfirmedNeverRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	b.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
	if r := b.refused(t, retrysafe.ErrUnavailable); r.RetryAfter <= 0 {
		t.Error("no time to come back")
	}
	if n := b.fault.Count(faultstore.Create); n != 3 {
		t.Errorf("the store was asked %d times, want 3", n)
	}
	if got := b.state(t); got.State != retrysafe.StateInProgress {
		t.Fatalf("the reservation is %s; the test wants it stored", got.State)
	}
	// The same process knows that it never started, so a retry need not wait for
	// a lease without an execution; a different request still may not have the key.
	b.fault.Plan(nil)
	different := call()
	different.Fingerprint = print(2)
	if _, _, err := b.Begin(t.Context(), different); !errors.Is(err, retrysafe.ErrMismatch) {
		t.Errorf("Begin = %v, want a mismatch", err)
	}
	x := b.begins(t)
	if x.Attempt() != 2 {
		t.Errorf("attempt %d, want 2: the fence must move", x.Attempt())
	}
	b.refused(t, retrysafe.ErrInFlight) // once taken it is held
	must(t, x.Complete(t.Context(), answer("late")))
	b.replays(t, "late")
}

func TestW14_OrphanIsNotLostWhenTakingItFails(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	b.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
	b.refused(t, retrysafe.ErrUnavailable)
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap {
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	b.refused(t, retrysafe.ErrUnavailable)
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap {
			return faultstore.LoseReply
		}
		return faultstore.None
	})
	b.refused(t, retrysafe.ErrUnavailable)
	b.fault.Plan(nil)
	must(t, b.begins(t).Complete(t.Context(), answer("late")))
	b.replays(t, "late")
}

func TestW15_StoreDownRefusesAndHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		for range 10 {
			start := time.Now()
			_, err := b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				t.Error("ran without a reservation")
				return answer(""), nil
			})
			if !errors.Is(err, retrysafe.ErrUnavailable) || time.Since(start) >= 2*time.Second {
				t.Fatalf("Do = %v after %v", err, time.Since(start))
			}
		}
		if b.Healthy() {
			t.Error("healthy with a store that is down")
		}
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnavailable) {
			t.Errorf("Peek = %v", err)
		}
		b.fault.Plan(nil)
		time.Sleep(2 * time.Second)
		must(t, b.begins(t).Complete(t.Context(), answer("healed")))
		if !b.Healthy() {
			t.Error("not healthy with a store that is back")
		}
	})
}

func TestW16_StoreThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		b.fault.Plan(faultstore.FailAll(faultstore.Hang))
		for i := range 20 {
			start := time.Now()
			b.refused(t, retrysafe.ErrUnavailable)
			took := time.Since(start)
			if took >= 2*time.Second || i >= 10 && took > 0 {
				t.Fatalf("call %d waited %v", i, took)
			}
		}
		if n := b.fault.Count(faultstore.Create); n >= 20 {
			t.Errorf("%d calls reached a store that hangs; the breaker lets them queue", n)
		}
		b.fault.Plan(nil)
		time.Sleep(2 * time.Second)
		must(t, b.begins(t).Release(t.Context(), nil))
	})
}

func TestW18_TransientFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.N <= 2 {
			return faultstore.LoseRequest // a serialisation failure, a deadlock, a busy database
		}
		return faultstore.None
	})
	x := b.begins(t)
	b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseRequest))
	must(t, x.Complete(t.Context(), answer("in the end")))
	b.replays(t, "in the end")
}

func TestW19_RowThatVanishesReservesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Retention: time.Nanosecond})
	must(t, b.begins(t).Release(t.Context(), nil))
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap && s.N == 1 { // the reaper comes between the look and the claim
			if n, err := b.mem.Purge(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("Purge = %d, %v", n, err)
			}
		}
		return faultstore.None
	})
	x := b.begins(t)
	if x.Attempt() != 1 || b.fault.Count(faultstore.Create) != 2 {
		t.Errorf("attempt %d after %d creates: it must reserve again", x.Attempt(), b.fault.Count(faultstore.Create))
	}
	b.fault.Plan(nil)
	must(t, x.Complete(t.Context(), answer("once")))
}

func TestW21_DifferentRequestIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	different := call()
	different.Fingerprint = print(2)
	refused := func(when string) {
		before := b.state(t)
		_, _, err := b.Begin(t.Context(), different)
		if !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("%s: Begin = %v, want a mismatch", when, err)
		}
		after := b.state(t)
		before.ReadAt, after.ReadAt = time.Time{}, time.Time{}
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s: the record changed from %v to %v", when, before, after)
		}
	}
	x := b.begins(t)
	refused("in flight")
	must(t, x.Complete(t.Context(), answer("first")))
	refused("completed")
	b.replays(t, "first")
}

func TestW22_ClientGoneBeforeTheStartIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	ctx, cancel := context.WithCancel(t.Context())
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Create {
			cancel()
		}
		return faultstore.None
	})
	_, err := b.Do(ctx, call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		t.Error("ran for a client that had gone")
		return answer(""), nil
	})
	if !errors.Is(err, context.Canceled) || b.state(t).State != retrysafe.StateRetryable {
		t.Fatalf("Do = %v, record %s; want it released", err, b.state(t).State)
	}
	b.fault.Plan(nil)
	must(t, b.begins(t).Complete(t.Context(), answer("second try")))
}

// A store whose disk is full, or that has become read-only, still answers replays. They
// do not close a breaker that failed writes have opened, and calls that only replay do
// not keep it open once the store takes writes again.
func TestBreakerOfFailedWritesIsClosedByAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		must(t, b.begins(t).Complete(t.Context(), answer("before")))
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Load || s.Write.Ref == ref {
				return faultstore.None // its record exists, so nothing is written
			}
			return faultstore.LoseRequest
		})
		fresh := call()
		for i := range 10 {
			fresh.Key = fmt.Sprint("new ", i)
			if _, _, err := b.Begin(t.Context(), fresh); !errors.Is(err, retrysafe.ErrUnavailable) {
				t.Fatalf("Begin = %v", err)
			}
		}
		for range 5 {
			time.Sleep(2 * time.Second)
			b.replays(t, "before") // one call in each rest
			if b.Healthy() {
				t.Fatal("a replay has closed a breaker that was opened by failed writes")
			}
			if _, err := b.Peek(t.Context(), call()); err != nil || b.Healthy() {
				t.Fatalf("Peek = %v, healthy: %v", err, b.Healthy())
			}
		}
		var tried retrysafe.Write
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Create && s.Write.Ref != ref {
				tried = s.Write
			}
			return faultstore.None
		})
		time.Sleep(2 * time.Second)
		b.replays(t, "before")
		if r := tried.Record; !r.Ref.IsSystem() || r.Key == "" || r.Owner.IsZero() || r.State != retrysafe.StateCompleted || r.Result == nil || !r.Readable() || tried.Term <= 0 || r.Retain != tried.Term {
			t.Errorf("the write that is tried is %+v: stores refuse it, or calls may meet it", tried)
		}
		if !b.Healthy() {
			t.Error("the store takes writes, and calls that only replay keep the breaker open")
		}
	})
}

// full is a store that has no room for new keys.
type full struct{ retrysafe.Store }

func (full) Create(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, retrysafe.ErrFull
}

// A full store refuses new keys and is healthy otherwise: the breaker stays closed, so that
// attempts and replays of keys that are stored go on.
func TestFullStoreDoesNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	e, err := retrysafe.New(full{memstore.New(nil)}, nil)
	must(t, err)
	for range 20 {
		if x, _, err := e.Begin(t.Context(), call()); x != nil || !errors.Is(err, retrysafe.ErrFull) || !e.Healthy() {
			t.Fatalf("Begin = %v, %v; healthy: %v", x, err, e.Healthy())
		}
	}
}

// Reads that fail open the breaker, and a read that is answered closes it: no write has
// failed, so none is tried.
func TestBreakerOfFailedReadsIsClosedByARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		must(t, b.begins(t).Complete(t.Context(), answer("before")))
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		for range 5 {
			var refused *retrysafe.RefusedError
			if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnavailable) || !errors.As(err, &refused) || refused.Record.Ref != ref || refused.RetryAfter <= 0 {
				t.Fatalf("Peek = %v", err)
			}
		}
		if b.Healthy() {
			t.Fatal("the breaker is closed after five reads that failed")
		}
		b.fault.Plan(nil)
		if _, err := b.Peek(t.Context(), call()); err != nil || !b.Healthy() || b.fault.Count(faultstore.Create) != 0 {
			t.Errorf("Peek = %v, healthy: %v, %d writes tried", err, b.Healthy(), b.fault.Count(faultstore.Create))
		}
	})
}

// A store that has lost writes and is full now answers, and takes none: that it refuses the
// write that is tried does not close the breaker.
func TestBreakerStaysOpenWhileTheStoreIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fills{Store: memstore.New(nil)}
		e, err := retrysafe.New(s, nil)
		must(t, err)
		x, _, err := e.Begin(t.Context(), call())
		must(t, err)
		must(t, x.Complete(t.Context(), answer("before")))
		s.err = errors.New("disk is gone")
		for e.Healthy() {
			if _, _, err := e.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "new"}}); !errors.Is(err, retrysafe.ErrUnavailable) {
				t.Fatalf("Begin = %v", err)
			}
		}
		s.err = retrysafe.ErrFull
		time.Sleep(2 * time.Second)
		if _, err := e.Peek(t.Context(), call()); err != nil || e.Healthy() {
			t.Errorf("Peek = %v, healthy: %v", err, e.Healthy())
		}
	})
}

// fills is a store that creates nothing once it has an error.
type fills struct {
	retrysafe.Store
	err error
}

func (s *fills) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if s.err != nil {
		return retrysafe.Record{}, s.err
	}
	return s.Store.Create(ctx, w)
}

// A client that hangs up while the store does not answer leaves no reservation behind: the
// step is sent on, and what it reserved is released.
func TestClientThatHangsUpDuringAReservationLeavesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		ctx, cancel := context.WithCancel(t.Context())
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Create && ctx.Err() == nil {
				cancel()
				return faultstore.LoseReply
			}
			return faultstore.None
		})
		if x, _, err := b.Begin(ctx, call()); x != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("Begin = %v, %v", x, err)
		}
		if got := b.state(t).State; got != retrysafe.StateRetryable {
			t.Errorf("it is %s, want retryable", got)
		}
	})
}
