package httpkey_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestW13_ThousandFirstRequestsRunOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy retrysafe.Policy
		status int
	}{
		"conflict": {retrysafe.Policy{}, http.StatusConflict},
		"accept":   {retrysafe.Policy{InFlight: retrysafe.InFlightAccept}, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			b := setup(t, withPolicy(c.policy))
			guarded := b.counted(func(w http.ResponseWriter, r *http.Request) {
				<-release
				b.created(w, r)
			})
			// Two nodes over one store: what one process knows, the other does not.
			var nodes []*httptest.Server
			for range 2 {
				e, err := retrysafe.New(b.mem, &retrysafe.Options{Policy: c.policy, StoreTimeout: time.Minute, SettleTimeout: time.Minute})
				must(t, err)
				g, err := httpkey.New(e, tenant, nil)
				must(t, err)
				s := httptest.NewServer(g.Handler(guarded))
				t.Cleanup(s.Close)
				nodes = append(nodes, s)
			}
			var refused, answered atomic.Int32
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					switch got := send(t, nodes[i%2], key, `{"a":1}`); got.status {
					case http.StatusCreated:
						answered.Add(1)
						if got.body != `{"run":1}` {
							t.Errorf("an answer is %q", got.body)
						}
					case c.status:
						if got.header.Get("Retry-After") == "" {
							t.Error("no Retry-After")
						}
						if refused.Add(1) == 500 {
							close(release)
						}
					default:
						t.Errorf("got %d %s", got.status, got.body)
					}
				})
			}
			wg.Wait()
			b.ranTimes(t, 1)
			if answered.Load() < 1 || answered.Load()+refused.Load() != 1000 {
				t.Errorf("%d answers, %d refusals", answered.Load(), refused.Load())
			}
		})
	}
}

func TestW14_LostReplyToTheReservation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fault.Plan(faultstore.FailOnce(faultstore.Create, 1, faultstore.LoseReply))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
}

func TestW14_ReservationThatCannotBeConfirmedNeverRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
	b.post(t, key, `{}`).refused(t, 503, "store-unavailable")
	b.ranTimes(t, 0)
	b.fault.Plan(nil)
	b.post(t, key, `{"n":1}`).refused(t, 422, "key-reused")
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
}

func TestW15_StoreDownIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		for range 10 {
			start := time.Now()
			got := b.post(t, key, `{}`)
			p := got.refused(t, 503, "store-unavailable")
			if took := time.Since(start); took >= 2*time.Second || got.header.Get("Retry-After") != "1" {
				t.Fatalf("refused after %v with %v", took, got.header)
			}
			if !p.Retryable || p.SafeNewKey || strings.Contains(got.body, "injected") {
				t.Errorf("the problem is %s", got.body)
			}
		}
		b.untouched(t)
		if !strings.Contains(b.log.String(), "injected") || strings.Contains(b.log.String(), key) {
			t.Errorf("the log tells too little or too much: %s", b.log)
		}
		b.fault.Plan(nil)
		time.Sleep(2 * time.Second)
		b.post(t, key, `{}`).ran(t, 1, false)
	})
}

func TestW16_StoreThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config){
		"plain":       func(*config) {},
		"rate":        func(c *config) { c.Limits.NewKeys = 1 },
		"over rate":   func(c *config) { c.Limits.NewKeys, c.Limits.NewKeysBurst = 0.0001, 1 },
		"active keys": func(c *config) { c.Limits.ActiveKeys = 1000 },
		"too many":    func(c *config) { c.Limits.ActiveKeys = 1 },
		"observe":     func(c *config) { c.Observe = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hung := &hangingCounter{mem: memstore.New(nil)}
				hung.Store = faultstore.New(hung.mem)
				e, err := retrysafe.New(hung, nil)
				must(t, err)
				b := setup(t, change)
				c := config{}
				change(&c)
				c.Logger = discard
				g, err := httpkey.New(e, tenant, &c.Options)
				must(t, err)
				b.Handler = g.Handler(b.counted(b.created))
				b.post(t, other, `{}`).ran(t, 1, false)
				b.runs.Store(0)
				time.Sleep(time.Millisecond)
				hung.hang()
				for i := range 20 {
					start := time.Now()
					got := b.post(t, key, `{}`)
					took := time.Since(start)
					if took >= 2*time.Second || i >= 10 && took > 0 {
						t.Fatalf("request %d waited %v", i, took)
					}
					if !c.Observe {
						got.refused(t, 503, "store-unavailable")
					}
				}
				if !c.Observe {
					b.ranTimes(t, 0)
				}
			})
		})
	}
}

// hangingCounter is a store of which nothing comes back once it hangs.
type hangingCounter struct {
	*faultstore.Store
	mem  *memstore.Store
	hung atomic.Bool
}

func (h *hangingCounter) hang() {
	h.hung.Store(true)
	h.Plan(faultstore.FailAll(faultstore.Hang))
}

func (h *hangingCounter) Count(ctx context.Context, scope string) (int, error) {
	if h.hung.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return h.mem.Count(ctx, scope)
}

func TestW17_WaitersGetTheAnswerAndHoldNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := setup(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			<-release
			b.created(w, r)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`).ran(t, 1, false) })
		synctest.Wait()
		b.fault.Plan(nil) // counts again from here
		for range 64 {
			wg.Go(func() { b.post(t, key, `{}`).ran(t, 1, true) })
		}
		time.Sleep(10 * time.Second)
		if n := b.fault.Count(faultstore.Load); n > 100 {
			t.Errorf("64 waiters asked the store %d times in 10 s", n)
		}
		close(release)
		wg.Wait()
	})
}

func TestWaitEndsWithAConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := setup(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: 2 * time.Second}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			<-release
			b.created(w, r)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`) })
		synctest.Wait()
		start := time.Now()
		got := b.post(t, key, `{}`)
		got.refused(t, 409, "in-flight")
		if took := time.Since(start); took != 2*time.Second || got.header.Get("Retry-After") == "" {
			t.Errorf("waited %v, %v", took, got.header)
		}
		close(release)
		wg.Wait()
	})
}

func TestW18_PassingTroubleIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.N == 1 {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		b.post(t, key, `{}`).ran(t, 1, false)
		b.post(t, key, `{}`).ran(t, 1, true)
	})
}

// A record that is reaped between the conflict and the claim is no leave to run
// without a reservation.
func TestW19_RecordThatVanishesIsReservedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.post(t, key, `{}`).ran(t, 1, false)
		time.Sleep(25 * time.Hour)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.N == 1 {
				if n, err := b.mem.Purge(context.Background(), 10); n != 1 || err != nil {
					t.Errorf("Purge = %d, %v", n, err)
				}
			}
			return faultstore.None
		})
		b.post(t, key, `{}`).ran(t, 2, false)
		if got := b.fault.Count(faultstore.Create); got != 2 {
			t.Errorf("%d creates, want 2", got)
		}
		b.post(t, key, `{}`).ran(t, 2, true)
	})
}

func TestW21_MismatchOutranksInFlight(t *testing.T) {
	t.Parallel()
	for _, policy := range []retrysafe.Policy{{}, {InFlight: retrysafe.InFlightAccept}, {InFlight: retrysafe.InFlightWait}} {
		started, release := make(chan struct{}), make(chan struct{})
		b := setup(t, withPolicy(policy))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			close(started)
			<-release
			b.created(w, r)
		}))
		s := b.serve(t)
		done := make(chan *response)
		go func() { done <- send(t, s, key, `{"n":1}`) }()
		<-started
		before := b.state(t)
		p := send(t, s, key, `{"n":2}`).refused(t, 422, "key-reused")
		if p.Retryable || p.SafeNewKey || p.Title != "Idempotency-Key is already used" {
			t.Errorf("the problem is %+v", p)
		}
		after := b.state(t)
		if after.Revision != before.Revision || !after.Deadline.Equal(before.Deadline) || after.State != before.State {
			t.Errorf("the mismatch changed the record: %+v, was %+v", after, before)
		}
		close(release)
		(<-done).ran(t, 1, false)
		send(t, s, key, `{"n":1}`).ran(t, 1, true)
		send(t, s, key, `{"n":2}`).refused(t, 422, "key-reused")
		b.ranTimes(t, 1)
	}
}

func TestW22_ClientGoneBeforeTheStartReleasesTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Create {
			cancel() // it hangs up while it is being reserved
		}
		return faultstore.None
	})
	b.do(request(t, key, `{}`).WithContext(ctx))
	b.ranTimes(t, 0)
	if got := b.state(t).State; got != retrysafe.StateRetryable {
		t.Errorf("the record is %s, want retryable: it provably never started", got)
	}
	b.post(t, key, `{}`).ran(t, 1, false)

	gone := request(t, other, `{}`).WithContext(ctx)
	b.do(gone)
	b.ranTimes(t, 1)
	if got := len(b.records(t)); got != 1 {
		t.Errorf("%d records; a client that is gone before it began leaves none", got)
	}
}

func TestClientThatWaitsMayHangUp(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	b := setup(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute}))
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-release
		b.created(w, r)
	}))
	s := b.serve(t)
	done := make(chan *response)
	go func() { done <- send(t, s, key, `{}`) }()
	<-started
	c := raw(t, s)
	_, err := io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: "+key+"\r\nContent-Length: 2\r\n\r\n{}")
	must(t, err)
	must(t, c.Close())
	close(release)
	(<-done).ran(t, 1, false)
	b.ranTimes(t, 1)
}

// What one request was read into serves the next; nothing of it may show there.
func TestRequestsAreNotMixedUp(t *testing.T) {
	t.Parallel()
	b := setup(t, patient, withHandler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/"+r.Header.Get("Idempotency-Key"))
		_, _ = io.Copy(w, r.Body)
	}))
	s := b.serve(t)
	var wg sync.WaitGroup
	for client := range 16 {
		wg.Go(func() {
			for n := range 40 {
				k := nth(client*1000 + n)
				body := `{"client":"` + strings.Repeat(k, 1+(client*7+n)%30) + `"}`
				for _, replayed := range []string{"", "true"} {
					got := send(t, s, k, body)
					if got.status != 200 || got.body != body || got.header.Get("Location") != "/"+k || got.header.Get("Idempotent-Replayed") != replayed {
						t.Errorf("%s: got %d %v %.60q", k, got.status, got.header, got.body)
					}
				}
				if got := send(t, s, k, body+" "); got.status != 200 { // the same request
					t.Errorf("%s: got %d %s", k, got.status, got.body)
				}
				if got := send(t, s, k, `{"client":"`+k+`x"}`); got.status != 422 {
					t.Errorf("%s: got %d %s, want a mismatch", k, got.status, got.body)
				}
			}
		})
	}
	wg.Wait()
	b.ranTimes(t, 16*40)
}
