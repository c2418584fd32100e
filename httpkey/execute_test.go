package httpkey_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// broken are the ways in which a handler does not come back.
var broken = map[string]func(){
	"panic":  func() { panic("out of coffee") },
	"error":  func() { panic(fmt.Errorf("wrapped: %w", io.EOF)) },
	"nil":    func() { panic(nil) },
	"goexit": runtime.Goexit,
}

// unmetered serves a request on a goroutine that the handler may end.
func (b *bundle) unmetered(r *http.Request) *response {
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		b.ServeHTTP(w, r)
	}()
	<-done
	return read(w.Result())
}

func TestW28_BrokenHandlerIsSettledByProof(t *testing.T) {
	t.Parallel()
	for name, breakDown := range broken {
		for _, c := range []struct {
			effects retrysafe.Effects
			state   retrysafe.State
			code    string
		}{
			{retrysafe.EffectsUnprotected, retrysafe.StateUnknown, "attempt-unknown"},
			{retrysafe.EffectsKeyed, retrysafe.StateRetryable, "attempt-failed"},
			{retrysafe.EffectsInTx, retrysafe.StateUnknown, "attempt-unknown"}, // no transaction was seen
		} {
			for _, p := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
				t.Run(fmt.Sprint(name, c.effects, p.Name), func(t *testing.T) {
					t.Parallel()
					b := setup(t, withPolicy(retrysafe.Policy{Effects: c.effects}), isProfile(p))
					b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
						if b.runs.Load() > 1 {
							b.created(w, r)
							return
						}
						w.Header().Set("Location", "/never")
						w.WriteHeader(http.StatusCreated)
						fmt.Fprint(w, "half of ")
						breakDown()
					}))
					got := b.unmetered(request(t, key, `{}`))
					got.refused(t, 500, c.code)
					if strings.Contains(got.body, "coffee") || strings.Contains(got.body, "half of") || got.header.Get("Location") != "" {
						t.Errorf("the client sees %v %s", got.header, got.body)
					}
					if log := b.log.String(); name == "panic" && (!strings.Contains(log, "coffee") || !strings.Contains(log, "execute_test.go")) {
						t.Errorf("the log does not say what happened and where: %s", log)
					}
					if got := b.state(t).State; got != c.state {
						t.Fatalf("the record is %s, want %s", got, c.state)
					}
					if c.state == retrysafe.StateUnknown {
						b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
						b.ranTimes(t, 1)
						return
					}
					b.post(t, key, `{}`).ran(t, 2, false)
				})
			}
		}
	}
}

func TestW28_GoexitIsAnsweredOverTheNetwork(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
	s := b.serve(t)
	send(t, s, key, `{}`).refused(t, 500, "attempt-unknown")
	send(t, s, other, `{}`).refused(t, 500, "attempt-unknown") // the server lives
}

func TestW28_AbortGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	s := b.serve(t)
	if got := talk(t, s, "POST /payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: "+key+"\r\nContent-Length: 2\r\n\r\n{}"); len(got) != 0 {
		t.Errorf("got %+v, want the connection cut", got)
	}
	send(t, s, key, `{}`).refused(t, 409, "outcome-unknown")
	if log := b.log.String(); strings.Contains(log, "did not finish") {
		t.Errorf("an abort is logged: %s", log)
	}
}

func TestW28_RepanicGoesOnAfterItIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Repanic = true }, withHandler(func(http.ResponseWriter, *http.Request) { panic("out of coffee") }))
	func() {
		defer func() {
			if p := recover(); p != "out of coffee" {
				t.Errorf("recovered %v, want the handler's own panic", p)
			}
		}()
		b.do(request(t, key, `{}`))
		t.Error("the panic did not go on")
	}()
	if got := b.state(t).State; got != retrysafe.StateUnknown {
		t.Errorf("the record is %s, want unknown", got)
	}
	if !strings.Contains(b.state(t).Reason, "out of coffee") {
		t.Errorf("the reason is %q", b.state(t).Reason)
	}
}

// Repanic is about panics. Another fault of a handler is answered as without it.
func TestRepanicLeavesOtherFaultsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Repanic = true }, withHandler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }))
	if got := b.post(t, key, `{}`); got.status != 500 || got.problem(t).Code == "" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := b.state(t).State; got != retrysafe.StateUnknown {
		t.Errorf("the record is %s, want unknown", got)
	}
}

func TestW28_PanicAfterTheHandlerSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settle func(context.Context, *retrysafe.Execution) error
		check  func(*testing.T, *response)
	}{
		"completed": {func(ctx context.Context, x *retrysafe.Execution) error {
			return x.Complete(ctx, retrysafe.Result{Status: 201, Body: []byte(`{"run":1}`)})
		}, func(t *testing.T, got *response) { got.ran(t, 1, false) }},
		"released": {func(ctx context.Context, x *retrysafe.Execution) error {
			return x.Release(ctx, io.EOF)
		}, func(t *testing.T, got *response) { got.refused(t, 500, "attempt-failed") }},
		"quarantined": {func(ctx context.Context, x *retrysafe.Execution) error {
			return x.Quarantine(ctx, io.EOF)
		}, func(t *testing.T, got *response) { got.refused(t, 500, "attempt-unknown") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withHandler(func(_ http.ResponseWriter, r *http.Request) {
				x, _ := retrysafe.FromContext(r.Context())
				must(t, c.settle(r.Context(), x))
				panic("too late")
			}))
			c.check(t, b.post(t, key, `{}`))
		})
	}
}

// A panic whose record cannot be settled is answered with what is known.
func TestW28_PanicWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t, quickSettle, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}))
	b.Handler = b.guard.Handler(b.counted(func(http.ResponseWriter, *http.Request) {
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		panic("out of coffee")
	}))
	b.post(t, key, `{}`).refused(t, 503, "outcome-pending")
	b.fault.Plan(nil)
	must(t, b.engine.Drain(t.Context()))
	if got := b.state(t).State; got != retrysafe.StateRetryable {
		t.Errorf("the record is %s", got)
	}
}

func TestW29_ClientThatHangsUpLosesNothing(t *testing.T) {
	t.Parallel()
	started, gone, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b := setup(t)
	h := b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-gone
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with the client's connection: %v", err)
		}
		b.created(w, r)
	}))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-First") == "" {
			h.ServeHTTP(w, r)
			return
		}
		defer close(finished)
		go func() {
			<-r.Context().Done() // the server has seen that the client is gone
			close(gone)
		}()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	c := raw(t, s)
	_, err := io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: x\r\nX-First: yes\r\nContent-Type: application/json\r\nIdempotency-Key: "+key+"\r\nContent-Length: 2\r\n\r\n{}")
	must(t, err)
	<-started
	must(t, c.Close())
	<-finished
	if got := b.state(t).State; got != retrysafe.StateCompleted {
		t.Fatalf("the record is %s, want completed", got)
	}
	send(t, s, key, `{}`).ran(t, 1, true)
}

func TestHandlerSettlesByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		first   int
		state   retrysafe.State
	}{
		"release": {func(w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			must(t, x.Release(r.Context(), io.EOF))
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 503, retrysafe.StateRetryable},
		"quarantine": {func(w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			must(t, x.Quarantine(r.Context(), io.EOF))
			w.WriteHeader(http.StatusAccepted)
		}, 202, retrysafe.StateUnknown},
		"complete": {func(w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			must(t, x.Complete(r.Context(), retrysafe.Result{Status: 203, Header: map[string][]string{"Etag": {`"1"`}}, Body: []byte("mine")}))
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "not this")
		}, 203, retrysafe.StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withHandler(c.handler))
			got := b.post(t, key, `{}`)
			if got.status != c.first || b.state(t).State != c.state {
				t.Fatalf("got %d %s, record %s", got.status, got.body, b.state(t).State)
			}
			switch c.state {
			case retrysafe.StateCompleted:
				if got.body != "mine" || got.header.Get("Etag") != `"1"` || got.header.Get("Idempotent-Replayed") != "" {
					t.Errorf("got %v %s", got.header, got.body)
				}
				b.post(t, key, `{}`).same(t, got)
			case retrysafe.StateUnknown:
				// When such a key is forgotten is not known; a date would send clients away.
				if got.header.Get("Idempotency-Expires") != "" {
					t.Errorf("an unknown outcome expires %s", got.header.Get("Idempotency-Expires"))
				}
				b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
			default:
				b.post(t, key, `{}`)
				b.ranTimes(t, 2)
			}
		})
	}
}

func TestHandlerSeesTheValuesOfItsContext(t *testing.T) {
	t.Parallel()
	type userKey struct{}
	b := setup(t, withHandler(func(_ http.ResponseWriter, r *http.Request) {
		if got := r.Context().Value(userKey{}); got != "alice" {
			t.Errorf("the handler sees %v", got)
		}
		if _, ok := r.Context().Deadline(); !ok {
			t.Error("the handler may run for ever")
		}
	}))
	b.do(request(t, key, `{}`).WithContext(context.WithValue(t.Context(), userKey{}, "alice")))
	b.ranTimes(t, 1)
}

// A handler that has settled its attempt may answer at any length.
func TestHandlerThatReleasedMaySayALot(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("sorry ", 1000)
	b := setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		must(t, x.Release(r.Context(), io.EOF))
		w.WriteHeader(http.StatusServiceUnavailable)
		if _, err := io.WriteString(w, long); err != nil {
			t.Errorf("WriteString = %v", err)
		}
	}))
	if got := b.post(t, key, `{}`); got.status != 503 || got.body != long {
		t.Errorf("got %d, %d bytes", got.status, len(got.body))
	}
	// One that has completed it has said all.
	b = setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		must(t, x.Complete(r.Context(), retrysafe.Result{Status: 201, Body: []byte(`{"run":1}`)}))
		if _, err := io.WriteString(w, long); err == nil {
			t.Error("a second answer was taken")
		}
	}))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
	// Also if what it goes on to say is an error.
	b = setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		must(t, x.Complete(r.Context(), retrysafe.Result{Status: 201, Body: []byte(`{"run":1}`)}))
		http.Error(w, long, http.StatusConflict)
	}))
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
}

// After Release and Quarantine a handler has no success to tell of, at any length and in
// any way that it breaks its response. The client gets what was settled, and the log says
// why it did not get the response.
func TestBrokenResponseAfterTheHandlerSettled(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("paid ", 1000)
	for name, c := range map[string]struct {
		write  http.HandlerFunc
		stream bool
		says   string // in the log; empty: nothing
	}{
		"nothing":             {func(http.ResponseWriter, *http.Request) {}, false, ""},
		"a success":           {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") }, false, "after it had called Release or Quarantine"},
		"a long success":      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long) }, false, "after it had called Release or Quarantine"},
		"a success to stream": {func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, true, "after it had called Release or Quarantine"},
		"an invalid status":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(42) }, false, "invalid status 42"},
		"another protocol":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }, false, "switched protocols"},
		"a hijack": {func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
				panic(err)
			}
		}, false, "Hijack on a guarded route"},
	} {
		for _, quarantines := range []bool{false, true} {
			b := setup(t, func(o *config) {
				o.MaxResponse = 100
				if c.stream {
					o.Stream = httpkey.StreamThrough
				}
			}, withHandler(func(w http.ResponseWriter, r *http.Request) {
				x, _ := retrysafe.FromContext(r.Context())
				if quarantines {
					must(t, x.Quarantine(r.Context(), io.EOF))
				} else {
					must(t, x.Release(r.Context(), io.EOF))
				}
				c.write(w, r)
			}))
			got := b.post(t, key, `{}`)
			if quarantines {
				got.refused(t, 500, "attempt-unknown")
				b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
			} else {
				got.refused(t, 500, "attempt-failed")
				b.post(t, key, `{}`)
				b.ranTimes(t, 2)
			}
			log := b.log.String()
			if c.says == "" && strings.Contains(log, "level=ERROR") || c.says != "" && (!strings.Contains(log, "level=ERROR") || !strings.Contains(log, c.says)) {
				t.Errorf("%s: the log does not say %q: %s", name, c.says, log)
			}
		}
	}
}

// What a handler has started in its request's context ends with the request.
func TestContextEndsWithTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ctx context.Context
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		ctx = r.Context()
		b.created(w, r)
	}))
	b.post(t, key, `{}`).ran(t, 1, false)
	if ctx.Err() == nil {
		t.Error("the context of a request that was answered has not ended")
	}
}
