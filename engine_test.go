package retrysafe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// bundle is an engine over a store that can be made to fail, and what it told
// its observer.
type bundle struct {
	*retrysafe.Engine
	mem   *memstore.Store
	fault *faultstore.Store

	mu     sync.Mutex
	events []retrysafe.EventKind
}

func (b *bundle) Observe(e retrysafe.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e.Kind)
}

func (b *bundle) saw(kind retrysafe.EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, k := range b.events {
		if k == kind {
			n++
		}
	}
	return n
}

func setup(t *testing.T, p retrysafe.Policy) *bundle {
	t.Helper()
	b := &bundle{mem: memstore.New(nil)}
	b.fault = faultstore.New(b.mem)
	e, err := retrysafe.New(b.fault, &retrysafe.Options{Policy: p, Observer: b})
	if err != nil {
		t.Fatal(err)
	}
	b.Engine = e
	return b
}

var ref = retrysafe.Ref{Scope: "tenant", Key: "key"}

func call() retrysafe.Call {
	return retrysafe.Call{Ref: ref, Operation: "POST /payments", Fingerprint: print(1)}
}

func print(n byte) retrysafe.Fingerprint {
	return retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{n}}
}

func answer(body string) retrysafe.Result {
	return retrysafe.Result{Status: 201, Header: map[string][]string{"Location": {"/payments/1"}}, Body: []byte(body)}
}

// begins asks for an execution and must get one.
func (b *bundle) begins(t *testing.T) *retrysafe.Execution {
	t.Helper()
	x, out, err := b.Begin(t.Context(), call())
	if x == nil {
		t.Fatalf("Begin = %v, %v; want an execution", out, err)
	}
	return x
}

// replays asks once more and must get the stored answer.
func (b *bundle) replays(t *testing.T, body string) {
	t.Helper()
	x, out, err := b.Begin(t.Context(), call())
	if out == nil {
		t.Fatalf("Begin = %v, %v; want a replay", x, err)
	}
	if want := answer(body); !out.Result.Equal(&want) || !out.Replayed {
		t.Fatalf("replay is %+v, want %q", out, body)
	}
}

// refused asks once more and must be refused for the given reason.
func (b *bundle) refused(t *testing.T, why error) *retrysafe.RefusedError {
	t.Helper()
	x, out, err := b.Begin(t.Context(), call())
	var refused *retrysafe.RefusedError
	if !errors.Is(err, why) || !errors.As(err, &refused) {
		t.Fatalf("Begin = %v, %v, %v; want refused: %v", x, out, err, why)
	}
	return refused
}

func (b *bundle) state(t *testing.T) retrysafe.Record {
	t.Helper()
	r, err := b.mem.Load(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	for _, c := range []struct {
		store retrysafe.Store
		opts  *retrysafe.Options
		want  string
	}{
		{nil, nil, "needs a store"},
		{store, &retrysafe.Options{StoreTimeout: -1}, "negative"},
		{store, &retrysafe.Options{Policy: retrysafe.Policy{Lapse: retrysafe.Rerun}}, "cannot rerun"},
	} {
		if _, err := retrysafe.New(c.store, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New = %v, want an error with %q", err, c.want)
		}
	}
	e, err := retrysafe.New(store, nil)
	must(t, err)
	if p := e.Policy(); p.Lease != 30*time.Second || p.Retention != 24*time.Hour || p.Effects != retrysafe.Unprotected {
		t.Errorf("the default policy is %+v", p)
	}
	if e.Store() != retrysafe.Store(store) || !e.Healthy() {
		t.Error("a new engine has its store and is healthy")
	}
	if _, err := e.With(retrysafe.Policy{Lapse: retrysafe.Resume}); !errors.Is(err, retrysafe.ErrPolicy) {
		t.Errorf("With = %v, want ErrPolicy", err)
	}
}

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

func TestFirstRunsEveryRetryReplays(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	runs := 0
	do := func() (retrysafe.Outcome, error) {
		return b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			if got, ok := retrysafe.FromContext(ctx); !ok || got != x || x.Ref() != ref || x.Attempt() != 1 {
				t.Error("the execution is not in its context")
			}
			return answer("first"), nil
		})
	}
	first, err := do()
	must(t, err)
	for range 3 {
		again, err := do()
		must(t, err)
		if !again.Result.Equal(&first.Result) || !again.Replayed || again.Attempt != 1 || !again.Expires.Equal(first.Expires) {
			t.Fatalf("a retry got %+v, want %+v", again, first)
		}
	}
	if runs != 1 || first.Replayed {
		t.Errorf("ran %d times, first replayed: %v", runs, first.Replayed)
	}
	if b.saw(retrysafe.EventReserved) != 1 || b.saw(retrysafe.EventCompleted) != 1 || b.saw(retrysafe.EventReplayed) != 3 {
		t.Errorf("observer saw %v", b.events)
	}
	if n := b.fault.Count(faultstore.Create) + b.fault.Count(faultstore.Swap) + b.fault.Count(faultstore.Load); n != 5 {
		t.Errorf("%d steps of the store, want one to reserve, one to settle, one for each replay", n)
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

func TestW14_ReservationThatCannotBeConfirmedNeverRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	b.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
	if r := b.refused(t, retrysafe.ErrUnavailable); r.RetryAfter <= 0 {
		t.Error("no time to come back")
	}
	if got := b.state(t); got.State != retrysafe.InProgress {
		t.Fatalf("the reservation is %s; the test wants it stored", got.State)
	}
	// The same process knows that it never started, so a retry need not wait for
	// a lease that nobody holds; a different request still may not have it.
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

func TestW17_WaitersShareOneLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{InFlight: retrysafe.Wait, Wait: time.Minute})
		x := b.begins(t)
		var wg sync.WaitGroup
		var looking, most atomic.Int32
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Load {
				most.Store(max(most.Load(), looking.Add(1)))
				looking.Add(-1)
			}
			return faultstore.None
		})
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
		b := setup(t, retrysafe.Policy{InFlight: retrysafe.Wait, Wait: 2 * time.Second})
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
		// An attempt that is released while somebody waits is run by the waiter.
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

func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{
			MaxWaiters: 1, Policy: retrysafe.Policy{InFlight: retrysafe.Wait, Wait: time.Second},
		})
		must(t, err)
		x, _, err := e.Begin(t.Context(), call())
		must(t, err)
		go func() { _, _, _ = e.Begin(t.Context(), call()) }()
		synctest.Wait()
		start := time.Now()
		if _, _, err := e.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) || time.Since(start) != 0 {
			t.Errorf("one waiter too many: %v after %v", err, time.Since(start))
		}
		must(t, x.Release(t.Context(), nil))
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
	if !errors.Is(err, context.Canceled) || b.state(t).State != retrysafe.Retryable {
		t.Fatalf("Do = %v, record %s; want it released", err, b.state(t).State)
	}
	b.fault.Plan(nil)
	must(t, b.begins(t).Complete(t.Context(), answer("second try")))
}

// crash forgets an execution as a killed process would: its heartbeat never
// comes, and its lease runs out.
func (b *bundle) crash(t *testing.T) {
	t.Helper()
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap && s.Record.State == retrysafe.InProgress && s.Record.Claim.IsZero() {
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	time.Sleep(b.Policy().Lease + time.Second)
	b.fault.Plan(nil)
}

func TestW23_PlainReservationCountsAsStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.crash(t)
		b.refused(t, retrysafe.ErrUnknown)
		must(t, x.Release(t.Context(), nil)) // stop its heartbeat; it is its own Unknown still
	})
}

func TestW24_LapsedAttemptGoesWhereItsOwnPolicySays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy retrysafe.Policy
		check  func(t *testing.T, b *bundle)
	}{
		{"unprotected: quarantined", retrysafe.Policy{}, func(t *testing.T, b *bundle) {
			if r := b.refused(t, retrysafe.ErrUnknown); r.RetryAfter < time.Second || b.state(t).Reason == "" {
				t.Errorf("refused with %+v", r)
			}
			b.refused(t, retrysafe.ErrUnknown)
		}},
		{"unprotected: failed", retrysafe.Policy{Lapse: retrysafe.Fail}, func(t *testing.T, b *bundle) {
			_, out, err := b.Begin(t.Context(), call())
			if err != nil || out.Status != 500 || !out.Replayed {
				t.Errorf("Begin = %+v, %v; want the stored error", out, err)
			}
		}},
		{"keyed: rerun", retrysafe.Policy{Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun}, func(t *testing.T, b *bundle) {
			x := b.begins(t)
			if x.Attempt() != 2 || !x.Checkpoint().IsZero() {
				t.Errorf("attempt %d from %v", x.Attempt(), x.Checkpoint())
			}
			must(t, x.Complete(t.Context(), answer("second")))
		}},
		{"in transaction: rerun", retrysafe.Policy{Effects: retrysafe.InTx, Lapse: retrysafe.Rerun}, func(t *testing.T, b *bundle) {
			must(t, b.begins(t).Complete(t.Context(), answer("second")))
		}},
		{"keyed: resume", retrysafe.Policy{Effects: retrysafe.Keyed, Lapse: retrysafe.Resume}, func(t *testing.T, b *bundle) {
			x := b.begins(t)
			if got := x.Checkpoint(); got.Phase != "charged" || string(got.Data) != "ch_1" {
				t.Errorf("resumed from %+v", got)
			}
			must(t, x.Complete(t.Context(), answer("second")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.policy)
				x := b.begins(t)
				must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}))
				b.crash(t)
				c.check(t, b)
				if b.saw(retrysafe.EventLapsed)+b.saw(retrysafe.EventRetried) == 0 {
					t.Error("nobody was told of the lapse")
				}
				_ = x.Release(t.Context(), nil)
			})
		})
	}
}

func TestW25_ZombieLosesItsRecordAndIsToldToStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun})
		zombie := b.begins(t)
		b.crash(t)
		if err := zombie.Context().Err(); err == nil {
			t.Error("an owner whose lease ran out unrenewed is not told to stop")
		}
		heir := b.begins(t)
		must(t, heir.Complete(t.Context(), answer("heir's")))
		if err := zombie.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's completion = %v, want ErrLost", err)
		}
		if err := zombie.Save(t.Context(), retrysafe.Checkpoint{Phase: "late"}); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's checkpoint = %v, want ErrLost", err)
		}
		b.replays(t, "heir's")
		if b.saw(retrysafe.EventLost) != 1 {
			t.Error("nobody was told of the zombie")
		}
	})
}

func TestW25_HeartbeatKeepsASlowOperationAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		for range 20 {
			time.Sleep(2 * time.Second)
			b.refused(t, retrysafe.ErrInFlight)
		}
		must(t, x.Complete(t.Context(), answer("slow")))
		b.replays(t, "slow")
	})
}

func TestW25_HeartbeatWhoseReplyIsLostAdoptsItsOwnRevision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 3 * time.Second})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		time.Sleep(10 * time.Second)
		b.refused(t, retrysafe.ErrInFlight)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		time.Sleep(1100 * time.Millisecond) // one more beat, its reply lost too
		must(t, x.Complete(t.Context(), answer("kept")))
		b.replays(t, "kept")
		if b.saw(retrysafe.EventLost) != 0 {
			t.Error("an owner lost to itself")
		}
	})
}

func TestW26_OnlyTheStoresClockCounts(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(skew) }})
			e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Retention: time.Hour}})
			must(t, err)
			x, _, err := e.Begin(t.Context(), call())
			must(t, err)
			if _, _, err := e.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
				t.Errorf("skew %v: Begin = %v, want in flight", skew, err)
			}
			must(t, x.Complete(t.Context(), answer("kept")))
			time.Sleep(59 * time.Minute)
			if _, out, err := e.Begin(t.Context(), call()); out == nil {
				t.Errorf("skew %v: not kept for its hour: %v", skew, err)
			}
			time.Sleep(2 * time.Minute)
			y, _, err := e.Begin(t.Context(), call())
			if y == nil {
				t.Fatalf("skew %v: kept for longer than its hour: %v", skew, err)
			}
			must(t, y.Release(t.Context(), nil))
		})
	}
}

func TestW28_PanicIsSettledByProofAndGoesOn(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]retrysafe.State{
		retrysafe.Unprotected: retrysafe.Unknown, retrysafe.Keyed: retrysafe.Retryable, retrysafe.InTx: retrysafe.Retryable,
	} {
		b := setup(t, retrysafe.Policy{Effects: effects})
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) { panic("boom") })
		}()
		if got := b.state(t); got.State != want || !strings.Contains(got.Reason, "boom") {
			t.Errorf("%s: a panic left %s (%s), want %s", effects, got.State, got.Reason, want)
		}
	}
}

func TestW28_GoexitIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runtime.Goexit()
			return answer("never"), nil
		})
	}()
	<-done
	if got := b.state(t).State; got != retrysafe.Unknown {
		t.Errorf("it is %s, want unknown", got)
	}
}

func TestW29_ClientThatHangsUpLosesNothing(t *testing.T) {
	t.Parallel()
	type traceKey struct{}
	b := setup(t, retrysafe.Policy{})
	ctx, hangUp := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "trace"))
	_, err := b.Do(ctx, call(), func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		hangUp()
		if ctx.Err() != nil || ctx.Value(traceKey{}) != "trace" {
			t.Errorf("the operation's context: err %v, trace %v", ctx.Err(), ctx.Value(traceKey{}))
		}
		return answer("kept"), nil
	})
	must(t, err)
	b.replays(t, "kept")
}

func TestW30_AttemptThatRunsTooLongIsSetAside(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]retrysafe.State{
		retrysafe.Unprotected: retrysafe.Unknown, retrysafe.Keyed: retrysafe.Retryable, retrysafe.InTx: retrysafe.Retryable,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, retrysafe.Policy{Effects: effects, Lease: 10 * time.Second, MaxRun: time.Minute})
			x := b.begins(t)
			time.Sleep(59 * time.Second)
			if x.Context().Err() != nil || b.state(t).State != retrysafe.InProgress {
				t.Error("set aside too early")
			}
			done := x.Context().Done()
			time.Sleep(2 * time.Second)
			<-done
			if cause := context.Cause(x.Context()); !errors.Is(cause, retrysafe.ErrTooLong) && !errors.Is(cause, context.DeadlineExceeded) {
				t.Errorf("cause = %v", cause)
			}
			if got := b.state(t); got.State != want {
				t.Errorf("%s: it became %s, want %s", effects, got.State, want)
			}
			if err := x.Save(t.Context(), retrysafe.Checkpoint{Phase: "late"}); !errors.Is(err, retrysafe.ErrTooLong) {
				t.Errorf("Save = %v", err)
			}
			// It comes to an answer after all, and nobody has moved its record.
			must(t, x.Complete(t.Context(), answer("late")))
			b.replays(t, "late")
		})
	}
}

func TestW30_SettingAsideIsTriedUntilItIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Lease: 10 * time.Second, MaxRun: 10 * time.Second})
		x := b.begins(t)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		time.Sleep(15 * time.Second)
		b.fault.Plan(nil)
		time.Sleep(5 * time.Second)
		if got := b.state(t).State; got != retrysafe.Unknown {
			t.Errorf("it is %s", got)
		}
		if err := x.Release(t.Context(), nil); err != nil {
			t.Errorf("its own proof is not taken: %v", err)
		}
	})
}

func TestW31_CrashBetweenEffectAndAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]int{}
		charge := func(x *retrysafe.Execution) { keys[x.DownstreamKey("charge")]++ }
		keyed := setup(t, retrysafe.Policy{Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun})
		dead := keyed.begins(t)
		charge(dead)
		keyed.crash(t)
		heir := keyed.begins(t)
		charge(heir)
		must(t, heir.Complete(t.Context(), answer("charged")))
		if len(keys) != 1 {
			t.Errorf("the provider saw %d keys, want one: %v", len(keys), keys)
		}
		_ = dead.Release(t.Context(), nil)

		unprotected := setup(t, retrysafe.Policy{})
		dead = unprotected.begins(t)
		unprotected.crash(t)
		for range 5 {
			unprotected.refused(t, retrysafe.ErrUnknown)
		}
		// The late owner of the same attempt may still settle its own Unknown.
		must(t, dead.Complete(t.Context(), answer("it did happen")))
		unprotected.replays(t, "it did happen")
	})
}

func TestW53_RetentionCountsFromTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Retention: time.Second, Lease: 3 * time.Second})
		x := b.begins(t)
		time.Sleep(time.Minute)
		if n, err := b.mem.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Fatalf("Purge = %d, %v; an attempt in flight never expires", n, err)
		}
		must(t, x.Complete(t.Context(), answer("kept")))
		b.replays(t, "kept")
		time.Sleep(2 * time.Second)
		if n, err := b.mem.Purge(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("Purge = %d, %v; want it forgotten", n, err)
		}
		must(t, b.begins(t).Release(t.Context(), nil))
	})
}

func TestExpiredKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Retention: time.Hour})
		gone, err := b.With(retrysafe.Policy{Retention: time.Hour, OnExpired: retrysafe.Gone})
		must(t, err)
		x := b.begins(t)
		x.Retain(2 * time.Hour)
		must(t, x.Complete(t.Context(), answer("old")))
		time.Sleep(90 * time.Minute)
		b.replays(t, "old") // kept for as long as Retain said
		time.Sleep(time.Hour)
		if _, _, err := gone.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrGone) {
			t.Errorf("Begin = %v, want ErrGone", err)
		}
		fresh := call()
		fresh.Fingerprint = print(2) // a new operation under an old key
		y, _, err := b.Begin(t.Context(), fresh)
		must(t, err)
		if r := y.Record(); y.Attempt() != 1 || r.Fingerprint != print(2) || !r.CreatedAt.Equal(r.UpdatedAt) {
			t.Errorf("it is not a new operation: %+v", r)
		}
		must(t, y.Complete(t.Context(), answer("new")))
	})
}

func TestW59_RecordOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	r := retrysafe.Record{Ref: ref, Version: retrysafe.RecordVersion + 1, State: retrysafe.Retryable, Owner: retrysafe.Owner{1}, Term: time.Hour}
	_, err := b.mem.Create(t.Context(), r)
	must(t, err)
	b.refused(t, retrysafe.ErrUnreadable)
	if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("Peek = %v", err)
	}
	if b.saw(retrysafe.EventUnreadable) != 2 {
		t.Error("nobody was told")
	}
}

func TestAcceptedWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		_, err := b.mem.Create(t.Context(), retrysafe.Record{
			Ref: ref, Version: retrysafe.RecordVersion, State: retrysafe.Accepted, Fingerprint: print(1), Owner: retrysafe.Owner{1},
			Attempt: 1, Request: []byte("later"), Term: time.Minute, Retain: time.Hour,
		})
		must(t, err)
		if r := b.refused(t, retrysafe.ErrAccepted); r.RetryAfter <= 0 {
			t.Error("no time to come back")
		}
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Errorf("Peek = %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := b.Attach(t.Context(), ref); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Errorf("Attach = %v", err)
		}
		_, out, err := b.Begin(t.Context(), call())
		if err != nil || out.Status != 408 {
			t.Errorf("Begin = %+v, %v; want the stored 408", out, err)
		}
	})
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
		if err != nil || string(out.Body) != "attached" {
			t.Errorf("Peek = %+v, %v", out, err)
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
		if _, err := b.Peek(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnknown) || b.state(t).State != retrysafe.InProgress {
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

func TestDoSettlesByProof(t *testing.T) {
	t.Parallel()
	failure := errors.New("no route to provider")
	for _, c := range []struct {
		policy retrysafe.Policy
		err    error
		want   retrysafe.State
	}{
		{retrysafe.Policy{}, failure, retrysafe.Unknown},
		{retrysafe.Policy{}, retrysafe.NotExecuted(failure), retrysafe.Retryable},
		{retrysafe.Policy{OnFailure: retrysafe.RetryFailure}, failure, retrysafe.Retryable},
		{retrysafe.Policy{Effects: retrysafe.Keyed}, failure, retrysafe.Retryable},
		{retrysafe.Policy{Effects: retrysafe.InTx}, failure, retrysafe.Retryable},
	} {
		b := setup(t, c.policy)
		_, err := b.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{}, c.err
		})
		if !errors.Is(err, failure) || b.state(t).State != c.want || !strings.Contains(b.state(t).Reason, "no route") {
			t.Errorf("%+v, %v: Do = %v, record %s", c.policy, c.err, err, b.state(t).State)
		}
	}
	if retrysafe.NotExecuted(nil) != nil || retrysafe.IsNotExecuted(failure) {
		t.Error("NotExecuted of nothing is nothing")
	}
}

func TestDoLeavesTheLastWordToItsFunction(t *testing.T) {
	t.Parallel()
	for want, settle := range map[retrysafe.State]func(context.Context, *retrysafe.Execution) error{
		retrysafe.Completed: func(ctx context.Context, x *retrysafe.Execution) error { return x.Complete(ctx, answer("own")) },
		retrysafe.Retryable: func(ctx context.Context, x *retrysafe.Execution) error { return x.Release(ctx, errors.New("own")) },
		retrysafe.Unknown:   func(ctx context.Context, x *retrysafe.Execution) error { return x.Quarantine(ctx, errors.New("own")) },
	} {
		b := setup(t, retrysafe.Policy{})
		out, err := b.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			must(t, settle(ctx, x))
			if x.State() != want {
				t.Errorf("the execution is %s, want %s", x.State(), want)
			}
			return answer("ignored"), nil
		})
		must(t, err)
		if b.state(t).State != want || want == retrysafe.Completed && string(out.Body) != "own" {
			t.Errorf("Do = %+v; record %s, want %s", out, b.state(t).State, want)
		}
	}
}

func TestSettledOnceOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	if x.State() != retrysafe.InProgress {
		t.Errorf("an open execution is %s", x.State())
	}
	if _, err := x.Outcome(t.Context()); !errors.Is(err, retrysafe.ErrOpen) {
		t.Errorf("Outcome of an open execution = %v", err)
	}
	must(t, x.Complete(t.Context(), answer("once")))
	for name, err := range map[string]error{
		"Complete": x.Complete(t.Context(), answer("twice")), "Release": x.Release(t.Context(), nil),
		"Quarantine": x.Quarantine(t.Context(), nil), "Save": x.Save(t.Context(), retrysafe.Checkpoint{Phase: "p"}),
	} {
		if !errors.Is(err, retrysafe.ErrSettled) {
			t.Errorf("%s after Complete = %v, want ErrSettled", name, err)
		}
	}
	x.Stop()
	if !errors.Is(x.Context().Err(), context.Canceled) {
		t.Error("a stopped execution's context goes on")
	}
	b.replays(t, "once")
}

func TestReasonsAreFitToBeStored(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	must(t, b.begins(t).Release(t.Context(), errors.New("nul \x00, bad \xff, "+strings.Repeat("long é ", 200))))
	got := b.state(t).Reason
	if len(got) > 500 || strings.Contains(got, "\x00") || !utf8.ValidString(got) || !strings.HasPrefix(got, "nul �, bad �, long") {
		t.Errorf("the reason is %q", got)
	}
}

func TestDownstreamKey(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	x := b.begins(t)
	first := x.DownstreamKey("charge")
	must(t, x.Release(t.Context(), nil))
	y := b.begins(t)
	if got := y.DownstreamKey("charge"); got != first || len(got) != 36 || strings.Contains(got, ref.Key) {
		t.Errorf("the second attempt's key is %q, the first one's %q", got, first)
	}
	all := []string{
		first, x.DownstreamKey("refund"), retrysafe.DownstreamKey("other service", ref, "charge"),
		retrysafe.DownstreamKey("", retrysafe.Ref{Scope: "tenantk", Key: "ey"}, "charge"),
		retrysafe.DownstreamKey("", retrysafe.Ref{Scope: "tenant", Key: "keyc"}, "harge"),
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 5 {
		t.Errorf("downstream keys collide: %q", all)
	}
	must(t, y.Release(t.Context(), nil))
}

func TestErrorsSpeakPlainly(t *testing.T) {
	t.Parallel()
	refused := &retrysafe.RefusedError{Err: retrysafe.ErrInFlight}
	if refused.Error() != retrysafe.ErrInFlight.Error() {
		t.Error(refused)
	}
	if got := retrysafe.NotExecuted(errors.New("dial")).Error(); got != "not executed: dial" {
		t.Error(got)
	}
	if _, ok := retrysafe.FromContext(t.Context()); ok {
		t.Error("there is no execution in a plain context")
	}
}
