package httpkey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// async makes the route of the tests an asynchronous one.
func async(c *config) {
	c.Async = true
	statusURL(c)
}

// payments is the operation of the request that most tests send.
const payments = "POST /payments"

// worker returns a worker for the route of the tests.
func (b *bundle) worker(t *testing.T, o *httpkey.WorkerOptions) *httpkey.Worker {
	t.Helper()
	if o == nil {
		o = &httpkey.WorkerOptions{Rest: time.Nanosecond}
	}
	w, err := httpkey.NewWorker(b.guard, map[string]http.Handler{payments: b.Handler}, o)
	must(t, err)
	return w
}

// work runs what waits, and fails unless that many requests did.
func (b *bundle) work(t *testing.T, want int) {
	t.Helper()
	n, err := b.worker(t, nil).RunOnce(context.WithoutCancel(t.Context()))
	must(t, err)
	if n != want {
		t.Fatalf("the worker ran %d requests, want %d", n, want)
	}
}

// accepted fails unless the response says that the request is stored or runs.
func (r *response) accepted(t *testing.T) {
	t.Helper()
	p := r.refused(t, 202, "in-flight")
	if !p.Retryable || p.SafeNewKey || r.header.Get("Retry-After") == "" || r.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %v %s", r.header, r.body)
	}
}

// is fails unless the record of the key that most tests use is in this state.
func (b *bundle) is(t *testing.T, want retrysafe.State) {
	t.Helper()
	if got := b.state(t); got.State != want {
		t.Fatalf("the record is %s (%s), want %s", got.State, got.Reason, want)
	}
}

func TestAsyncIsStoredThenRun(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	for range 2 {
		got := b.post(t, key, `{"a":1}`)
		got.accepted(t)
		if got.header.Get("Location") != "/status/"+key {
			t.Errorf("the place to look is %q", got.header.Get("Location"))
		}
	}
	b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
	b.ranTimes(t, 0)
	b.is(t, retrysafe.StateAccepted)
	if got := b.state(t).Attempt; got != 0 {
		t.Errorf("attempt %d of what was never run", got)
	}

	b.work(t, 1)
	got := b.post(t, key, `{"a":1}`)
	got.ran(t, 1, true)
	b.post(t, key, `{"a":1}`).same(t, got)
	b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
	b.work(t, 0)
	b.ranTimes(t, 1)
	if enforced, _ := b.found("in-flight"); enforced != 0 {
		t.Errorf("accepted requests are reported as %d refusals", enforced)
	}
}

// What is refused of an ordinary request is refused of this one, and nothing is
// stored.
func TestAsyncRefusesAsEver(t *testing.T) {
	t.Parallel()
	b := setup(t, async, func(c *config) { c.MaxRequest = 10 })
	b.post(t, "", `{}`).refused(t, 400, "key-missing")
	b.post(t, key, `{}`, with("X-Tenant", "anonymous")).refused(t, 403, "caller-unidentified")
	b.post(t, key, `{"a":"too long"}`).refused(t, 413, "body-too-large")
	b.post(t, key, `{}`, with("Content-Encoding", "gzip")).refused(t, 415, "encoding-unsupported")
	b.untouched(t)
}

func TestAsyncAnswers202WhileItRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		b.post(t, key, `{}`).accepted(t)
		b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
		b.created(w, r)
	}))
	b.post(t, key, `{}`).accepted(t)
	b.work(t, 1)
	b.post(t, key, `{}`).ran(t, 1, true)
}

// A handler that runs later sees the request that was sent: what the router found
// in it included, credentials excluded.
func TestAsyncHandlerSeesTheRequest(t *testing.T) {
	t.Parallel()
	const pattern = "POST example.com/shops/{shop}/{rest...}"
	var seen *http.Request
	var body string
	b := setup(t, async, func(c *config) {
		c.KeepHeaders, c.FingerprintHeaders = []string{"x-campaign"}, []string{"Stripe-Version", "X-Api-Key"}
		c.Encoded = httpkey.EncodedDecodeGzip
	})
	route := b.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen, body = r, string(text)
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex(), c.Flush()); err != nil {
			t.Errorf("a handler that looks after its connection is told %v", err)
		}
		w.WriteHeader(http.StatusEarlyHints)
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		fmt.Fprint(w, "done")
	}))
	mux := http.NewServeMux()
	mux.Handle(pattern, route)
	b.Handler = mux
	headers := map[string]string{
		"Content-Encoding": "gzip", "X-Campaign": "spring", "Stripe-Version": "2026-01-01", "Accept": "text/plain",
		"Authorization": "Bearer 1", "Cookie": "session=1", "X-Api-Key": "1", "Proxy-Authorization": "Basic 1", "X-Auth-Token": "1",
		"X-Other": "1", "Connection": "close",
	}
	b.post(t, key, string(zip(t, []byte(`{"a":1}`))), to("/shops/7%2F8/a/b%20c?q=1&q=2"), func(r *http.Request) {
		for name, value := range headers {
			r.Header.Set(name, value)
		}
	}).accepted(t)

	w, err := httpkey.NewWorker(b.guard, map[string]http.Handler{pattern: route}, nil)
	must(t, err)
	if n, err := w.RunOnce(t.Context()); n != 1 || err != nil {
		t.Fatalf("RunOnce = %d, %v", n, err)
	}
	if seen.Method != http.MethodPost || seen.Host != "example.com" || seen.Pattern != pattern || body != `{"a":1}` || seen.ContentLength != 7 ||
		seen.URL.Path != "/shops/7/8/a/b c" || seen.URL.EscapedPath() != "/shops/7%2F8/a/b%20c" || seen.URL.RawQuery != "q=1&q=2" ||
		seen.RequestURI != "/shops/7%2F8/a/b%20c?q=1&q=2" || seen.PathValue("shop") != "7/8" || seen.PathValue("rest") != "a/b c" {
		t.Errorf("the handler sees %+v with %q", seen, body)
	}
	if x, ok := retrysafe.FromContext(seen.Context()); !ok || x.Ref().Scope != "acme" || x.Ref().Key != key {
		t.Error("the handler does not know whose request it runs")
	}
	want := map[string]string{"Content-Type": "application/json", "Idempotency-Key": key, "Accept": "text/plain", "X-Campaign": "spring", "Stripe-Version": "2026-01-01"}
	for name := range seen.Header {
		if seen.Header.Get(name) != want[name] {
			t.Errorf("%s is %q, want %q", name, seen.Header.Get(name), want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("the handler does not see %v", want)
	}
	for _, r := range b.records(t) {
		if strings.Contains(string(r.Request), "Bearer") || r.Result.Header["Set-Cookie"] != nil {
			t.Errorf("a credential is stored: %q, %v", r.Request, r.Result.Header)
		}
	}
}

// A request is settled as an ordinary one is, whatever its handler does.
func TestAsyncSettlesAsEver(t *testing.T) {
	t.Parallel()
	keyed := retrysafe.Policy{Effects: retrysafe.EffectsKeyed}
	for name, c := range map[string]struct {
		policy  retrysafe.Policy
		change  func(*config)
		handler http.HandlerFunc
		state   retrysafe.State
	}{
		"a client error":            {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, state: retrysafe.StateCompleted},
		"a server error":            {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, state: retrysafe.StateUnknown},
		"a server error, keyed":     {policy: keyed, handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, state: retrysafe.StateAccepted},
		"too many requests":         {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, state: retrysafe.StateAccepted},
		"nothing":                   {handler: func(http.ResponseWriter, *http.Request) {}, state: retrysafe.StateUnknown},
		"nothing, keyed":            {policy: keyed, handler: func(http.ResponseWriter, *http.Request) {}, state: retrysafe.StateAccepted},
		"nothing, allowed":          {change: func(c *config) { c.AllowEmpty = true }, handler: func(http.ResponseWriter, *http.Request) {}, state: retrysafe.StateCompleted},
		"a panic":                   {handler: func(http.ResponseWriter, *http.Request) { panic("out of coffee") }, state: retrysafe.StateUnknown},
		"a panic, keyed":            {policy: keyed, handler: func(http.ResponseWriter, *http.Request) { panic("out of coffee") }, state: retrysafe.StateAccepted},
		"a panic that goes on":      {change: func(c *config) { c.Repanic = true }, handler: func(http.ResponseWriter, *http.Request) { panic("out of coffee") }, state: retrysafe.StateUnknown},
		"an abort":                  {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, state: retrysafe.StateUnknown},
		"the end of its goroutine":  {handler: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, state: retrysafe.StateUnknown},
		"a hijack":                  {handler: hijack, state: retrysafe.StateUnknown},
		"an answer over the limit":  {change: func(c *config) { c.MaxResponse = 2 }, handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "long") }, state: retrysafe.StateCompleted},
		"a server error, is stored": {policy: retrysafe.Policy{OnFailure: retrysafe.FailureStore}, handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, state: retrysafe.StateCompleted},
		"its own word": {handler: func(_ http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			_ = x.Quarantine(r.Context(), errors.New("no idea"))
		}, state: retrysafe.StateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := []func(*config){async, withPolicy(c.policy), withHandler(c.handler)}
			if c.change != nil {
				change = append(change, c.change)
			}
			b := setup(t, change...)
			b.post(t, key, `{}`).accepted(t)
			b.work(t, 1)
			b.is(t, c.state)
			if logged := strings.Contains(b.log.String(), "panic in a worker"); logged != (name == "a panic that goes on") { // the others are the handler's own affair
				t.Errorf("logged as a panic of the worker: %t: %s", logged, b.log)
			}
			switch got := b.post(t, key, `{}`); c.state {
			case retrysafe.StateUnknown:
				got.refused(t, 409, "outcome-unknown")
				b.work(t, 0)
			case retrysafe.StateAccepted: // it waits for another attempt, whether its client asks or not
				got.accepted(t)
				b.work(t, 1)
				b.ranTimes(t, 2)
			default:
				if got.header.Get("Idempotent-Replayed") != "true" && !strings.Contains(got.body, "response-not-stored") {
					t.Errorf("got %d %s, want the stored answer", got.status, got.body)
				}
				b.work(t, 0)
			}
		})
	}
}

func hijack(w http.ResponseWriter, _ *http.Request) {
	if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
		panic("there is no connection")
	}
}

func TestAsyncEffectAndAnswerCommitTogether(t *testing.T) {
	t.Parallel()
	fail := true
	b, l := inTx(t, func(b *bundle, _ *ledger, tx *memstore.Tx, w http.ResponseWriter, r *http.Request) {
		b.created(w, r)
		must(t, httpkey.CompleteTx(r.Context(), w, tx))
		if fail {
			must(t, tx.Rollback(r.Context()))
			return
		}
		must(t, tx.Commit(r.Context()))
	}, async)
	b.post(t, key, `{}`).accepted(t)
	b.work(t, 1)
	b.is(t, retrysafe.StateAccepted)
	l.has(t, 0)
	fail = false
	b.post(t, key, `{}`).accepted(t)
	b.work(t, 1)
	b.post(t, key, `{}`).ran(t, 2, true)
	l.has(t, 1)
}

func TestAsyncGivesUpAfterItsPatience(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(*testing.T, *bundle){
		"by a retry": func(*testing.T, *bundle) {},
		"by a sweeper": func(t *testing.T, b *bundle) {
			next, ok := retrysafe.DecideLapse(b.state(t))
			if !ok {
				t.Fatal("there is nothing to sweep")
			}
			_, err := b.mem.Swap(t.Context(), next)
			must(t, err)
			if got := b.look(t, key); got.status != 408 || got.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("its status is %d %s, want the stored 408", got.status, got.body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, async, withPolicy(retrysafe.Policy{Patience: time.Minute}))
				b.post(t, key, `{}`).accepted(t)
				time.Sleep(59 * time.Second)
				b.post(t, key, `{}`).accepted(t) // asking does not buy time
				time.Sleep(time.Second)
				b.work(t, 0) // too late
				b.look(t, key).accepted(t)
				giveUp(t, b)
				for range 2 {
					if got := b.post(t, key, `{}`); got.status != 408 || got.header.Get("Idempotent-Replayed") != "true" {
						t.Errorf("got %d %s, want the stored 408", got.status, got.body)
					}
				}
				b.work(t, 0)
				b.ranTimes(t, 0)
			})
		})
	}
}

// Where there are limits, a stored request is charged once, and its retries are not.
func TestAsyncIsChargedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async, func(c *config) { c.Limits = httpkey.Limits{NewKeys: 0.001, NewKeysBurst: 1, ActiveKeys: 1} })
		for range 3 {
			b.post(t, key, `{}`).accepted(t)
		}
		b.post(t, other, `{}`).refused(t, 429, "too-many-active-keys")
		b.work(t, 1)
		b.post(t, key, `{}`).ran(t, 1, true)
		b = setup(t, async, func(c *config) { c.Limits = httpkey.Limits{NewKeys: 0.001, NewKeysBurst: 1} })
		b.post(t, key, `{}`).accepted(t)
		b.post(t, other, `{}`).refused(t, 429, "too-many-new-keys")
		b.post(t, key, `{}`).accepted(t)
	})
}

func TestAsyncThatOnlyObservesRunsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, async, func(c *config) { c.Observe = true })
	b.post(t, key, `{}`).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 2, false)
	b.is(t, retrysafe.StateCompleted)
}

func TestAsyncOptionsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, change := range map[string]func(*httpkey.Options){
		"Stream":          func(o *httpkey.Options) { o.Stream = httpkey.StreamThrough },
		"KeepCredentials": func(o *httpkey.Options) { o.KeepCredentials = []string{"Authorization"} },
		"Cookie":          func(o *httpkey.Options) { o.KeepHeaders = []string{"cookie"} },
		"X-Api-Key":       func(o *httpkey.Options) { o.KeepHeaders = []string{"X-Api-Key"} },
		"X-Session-Id":    func(o *httpkey.Options) { o.KeepHeaders = []string{"X-Session-Id"} },
		"Connection":      func(o *httpkey.Options) { o.KeepHeaders = []string{"Connection"} },
	} {
		_, err := b.guard.With(func(o *httpkey.Options) { o.Async = true; change(o) })
		if err == nil || !strings.HasPrefix(err.Error(), "httpkey: ") || !strings.Contains(err.Error(), name) && !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenAPIOfAnAsyncRoute(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	f := describe(t, b.guard)
	if got := f.Components.Responses["in-flight"].Status; got != 202.0 || f.Policy["async"] != true {
		t.Errorf("published %v, %v", got, f.Policy)
	}
}

func TestCallerIsWhoseKeyItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perOperation, bind bool
		principal          string
	}{{}, {perOperation: true}, {bind: true, principal: "alice"}, {perOperation: true, bind: true, principal: "alice"}} {
		b := setup(t, func(o *config) {
			if o.PerOperation = c.perOperation; c.bind {
				o.Bind = func(*http.Request) (string, error) { return "alice", nil }
			}
		})
		b.post(t, key, `{}`).ran(t, 1, false)
		if tenant, principal := httpkey.Caller(b.records(t)[0].Ref); tenant != "acme" || principal != c.principal {
			t.Errorf("%+v: it is %q of %q", c, principal, tenant)
		}
	}
}

// look asks for the status of a request.
func (b *bundle) look(t *testing.T, k string, change ...func(*http.Request)) *response {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/status/{key}", b.guard.Status(payments))
	mux.Handle("/status", b.guard.Status(payments))
	r := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "/status/"+k, nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return read(w.Result())
}
