package dynamostore_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// behindProxy opens a store that reaches its server through a proxy, by one connection,
// and a store past it.
func behindProxy(t *testing.T, server string) (*netfault.Proxy, *dynamostore.Store, *dynamostore.Store) {
	t.Helper()
	parsed, err := url.Parse(server)
	must(t, err)
	proxy, err := netfault.New(parsed.Host)
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	through, transport := "http://"+proxy.Addr(), &http.Transport{MaxConnsPerHost: 1}
	t.Cleanup(transport.CloseIdleConnections)
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &through, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	table := newTable()
	return proxy, open(t, client, table), open(t, newClient(t, server), table)
}

// A connection breaks once, at one byte after another of all that an operation sends and
// receives. Each step finds out by itself what became of it: it never conflicts with its
// own write, and what it returns is what is stored.
func TestW14W43_ConnectionThatBreaksAtAnyByte(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{"dynalite": sharedDynalite(t), "fake": newFake(t).URL} {
		for at, fault := range []netfault.Fault{netfault.Cut, netfault.Reset, netfault.HalfClose} {
			t.Run(name+"/"+fault.String(), func(t *testing.T) {
				t.Parallel()
				proxy, s, truth := behindProxy(t, server)
				points := 0
				for _, dir := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
					if fault == netfault.HalfClose && dir == netfault.ToServer {
						continue // the server waits for the rest of the request; the next test has it
					}
					operate(t, s, truth, fmt.Sprint("warm up ", dir))
					proxy.Plan(nil)
					operate(t, s, truth, fmt.Sprint("measured ", dir))
					total := proxy.Seen(dir)
					stride := max(1, total/16)
					for n := stride * int64(at) / 3; n < total; n += stride {
						proxy.Plan(atByte(dir, n, fault))
						operate(t, s, truth, fmt.Sprint(dir, " ", n))
						proxy.Plan(nil)
						points++
					}
				}
				if points < 15 {
					t.Errorf("broke at %d points only", points)
				}
			})
		}
	}
}

// A reply that never comes is not waited for: the step is sent again by another
// connection.
func TestW16_ReplyThatNeverComesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	proxy, s, truth := behindProxy(t, newFake(t).URL)
	s.SetTimeout(200 * time.Millisecond)
	for _, dir := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
		proxy.Plan(atByte(dir, 5, netfault.Discard))
		operate(t, s, truth, fmt.Sprint("discarded ", dir))
	}
}

// atByte is a plan in which one connection fails, once: the one that the n-th byte in
// dir, of all connections together, is about to pass through.
func atByte(dir netfault.Direction, n int64, f netfault.Fault) netfault.Plan {
	passed := int64(0)
	return netfault.Once(func(c netfault.Chunk) netfault.Verdict {
		if c.Dir != dir {
			return netfault.Verdict{}
		}
		before := passed
		passed += int64(len(c.Data))
		if passed <= n {
			return netfault.Verdict{}
		}
		return netfault.Verdict{Fault: f, Pass: int(n - before)}
	})
}

// operate reserves a key, renews the lease and completes it, each of which must succeed,
// and compares with what is stored.
func operate(t *testing.T, s, truth *dynamostore.Store, key string) {
	t.Helper()
	w := fresh(key)
	created, err := s.Create(t.Context(), w)
	if err != nil || created.Owner != w.Owner {
		t.Fatalf("%s: Create = %v", key, err)
	}
	beat := created.Update()
	beat.Term = w.Term
	renewed, err := s.Swap(t.Context(), beat)
	if err != nil {
		t.Fatalf("%s: a heartbeat conflicts with itself: %v", key, err)
	}
	completed, err := s.Swap(t.Context(), done(renewed, w.Term))
	if err != nil {
		t.Fatalf("%s: a completion conflicts with itself: %v", key, err)
	}
	stored, err := truth.Load(t.Context(), w.Ref)
	if err != nil || stored.Fence() != completed.Fence() || stored.State != retrysafe.StateCompleted || !stored.Result.Equal(completed.Result) {
		t.Errorf("%s: stored is %v at %v, and the step returned %v (%v)", key, stored.State, stored.Fence(), completed.Fence(), err)
	}
	if _, err := truth.Create(t.Context(), fresh(key)); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("%s: another owner's Create = %v, want ErrExists", key, err)
	}
}

// A request that the service has applied and answered with an error of its own is
// recognised too, with and without the item in the refusal.
func TestW14W43_AppliedStepWhoseReplyIsAnErrorRecognisesItself(t *testing.T) {
	t.Parallel()
	for _, hidden := range []bool{false, true} {
		fake := newFake(t)
		if hidden {
			fake.HideOld()
		}
		s := open(t, newClient(t, fake.URL), newTable())
		s.SetLease(time.Hour) // a request that renews it would take the failure of the step
		fake.FailNext(500, true, "InternalServerError", "InternalServerError")
		created, err := s.Create(t.Context(), fresh("k"))
		if err != nil {
			t.Fatalf("Create = %v", err)
		}
		fake.FailNext(500, true, "InternalServerError")
		completed, err := s.Swap(t.Context(), done(created, 0))
		if err != nil || completed.State != retrysafe.StateCompleted {
			t.Fatalf("Swap = %v, %v", completed.State, err)
		}
		// The same write as a new step is another step, and loses.
		if got, err := s.Swap(t.Context(), done(created, 0)); !errors.Is(err, retrysafe.ErrConflict) || got.Fence() != completed.Fence() {
			t.Errorf("a second Swap = %v, %v", got.Fence(), err)
		}
	}
}

// Throttled requests are sent again. If all are refused the error says what to do, and is
// no answer about the key.
func TestThrottledStepsAreSentAgain(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := open(t, newClient(t, fake.URL), newTable())
	s.SetLease(time.Hour) // a request that renews it would take the failure of the step
	const busy = "ProvisionedThroughputExceededException"
	fake.FailNext(400, false, busy, "ThrottlingException", busy)
	must(t, second(s.Create(t.Context(), fresh("k"))))
	if n := fake.Requests()["PutItem"]; n < 4 {
		t.Errorf("%d requests", n)
	}
	fake.FailNext(400, false, busy, busy, busy, busy, busy)
	_, err := s.Load(t.Context(), fresh("k").Ref)
	if err == nil || errors.Is(err, retrysafe.ErrNotFound) || !containsText(err, "on-demand") {
		t.Errorf("Load = %v", err)
	}
	fake.FailNext(400, false, "AccessDeniedException")
	if err := second(s.Load(t.Context(), fresh("k").Ref)); err == nil || errors.Is(err, retrysafe.ErrNotFound) || !containsText(err, "dynamodb:") {
		t.Errorf("Load without rights = %v", err)
	}
	must(t, second(s.Load(t.Context(), fresh("k").Ref)))
}

// A step whose reply was lost, and that another step has overwritten before it was sent
// again, was applied. It gets neither ErrExists nor ErrConflict nor ErrNotFound, which
// say that nothing was written.
func TestOverwrittenStepWhoseReplyIsLostCannotSay(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	client, table := newClient(t, fake.URL), newTable()
	s, other := open(t, client, table), open(t, client, table)
	s.SetLease(time.Hour) // a request that renews it would take the failure of a step
	other.SetLease(time.Hour)
	ctx := t.Context()
	claim := func(key string) {
		r, err := other.Load(ctx, fresh(key).Ref)
		if err != nil {
			t.Errorf("Load = %v", err)
		}
		w := fresh(key)
		w.Overwrite, w.Attempt, w.Expect = true, 2, r.Fence()
		if err := second(other.Swap(ctx, w)); err != nil {
			t.Errorf("a claim in between: %v", err)
		}
	}
	purge := func() {
		for n, err := other.Purge(ctx, 10); n == 0; n, err = other.Purge(ctx, 10) {
			if err != nil {
				t.Errorf("Purge = %v", err)
				return
			}
		}
	}
	cannotSay := func(step string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, retrysafe.ErrExists) || errors.Is(err, retrysafe.ErrConflict) || errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("%s = %v, want an error that is no answer", step, err)
		}
	}
	swapped, err := s.Create(ctx, fresh("swapped"))
	must(t, err)
	swappedAndPurged, err := s.Create(ctx, fresh("swapped and purged"))
	must(t, err)
	for step, c := range map[string]struct{ between, step func() }{
		"Create":       {func() { claim("k") }, func() { cannotSay("Create", second(s.Create(ctx, fresh("k")))) }},
		"Swap":         {func() { claim("swapped") }, func() { cannotSay("Swap", second(s.Swap(ctx, done(swapped, time.Hour)))) }},
		"Swap, purged": {purge, func() { cannotSay("Swap, purged", second(s.Swap(ctx, done(swappedAndPurged, 0)))) }},
	} {
		t.Log(step)
		fake.AfterFailure(c.between)
		fake.FailNext(500, true, "InternalServerError")
		c.step()
	}
	// A reply that was lost before the request arrived leaves the answer as it is.
	fake.FailNext(500, false, "InternalServerError")
	if _, err := s.Create(ctx, fresh("k")); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("Create of a key that exists = %v, want ErrExists", err)
	}
	fake.FailNext(500, false, "InternalServerError")
	if _, err := s.Swap(ctx, done(swapped, time.Hour)); !errors.Is(err, retrysafe.ErrConflict) {
		t.Errorf("Swap at an old revision = %v, want ErrConflict", err)
	}
}
