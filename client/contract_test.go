package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// hangUp ends the connection without an answer.
func hangUp() { panic(http.ErrAbortHandler) }

// An answer that is lost is asked for again, with the same key and the same bytes, and what
// was executed is not executed again.
func TestRetriesHaveTheSameKeyAndBytes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, &httpkey.Options{FirstSent: true, RequireFirstSent: true, Strict: true}, keyed, nil)
	var lost atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w2 := httptest.NewRecorder()
		a.Config.Handler.ServeHTTP(w2, r)
		if lost.Add(1) <= 3 {
			hangUp()
		}
		for name, values := range w2.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(w2.Code)
		_, _ = w.Write(w2.Body.Bytes())
	}))
	t.Cleanup(front.Close)
	c := newClient(t, client.Options{})
	response, err := c.Do("", post(t, front.URL+"/payments", "1"))
	if paid(t, "1", response, err); !client.Replayed(response) {
		t.Error("the answer of the fourth attempt is not marked as a replay")
	}
	all := a.arrived()
	if len(all) != 4 || a.effectsOf("1") != 1 {
		t.Fatalf("%d requests and %d effects, want 4 and 1", len(all), a.effectsOf("1"))
	}
	if !regexp.MustCompile(`^"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"$`).MatchString(all[0].key) {
		t.Errorf("the key is %s, want a UUID of version 7 in quotes", all[0].key)
	}
	if _, err := http.ParseTime(all[0].firstSent); err != nil {
		t.Errorf("Idempotency-First-Sent: %v", err)
	}
	for _, r := range all[1:] {
		if r != all[0] {
			t.Errorf("a retry was %+v, and the first attempt %+v", r, all[0])
		}
	}
	response, err = c.Do("", post(t, front.URL+"/payments", "2"))
	if paid(t, "2", response, err); client.Replayed(response) || a.arrived()[4].key == all[0].key {
		t.Error("another operation has the key or the answer of the first")
	}
}

func TestTheCallersKeyIsUsed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil, keyed, nil)
	c := newClient(t, client.Options{})
	r := post(t, a.URL+"/payments", "1")
	r.Header.Set("Idempotency-Key", "order-1-of-the-caller")
	response, err := c.Do("", r)
	paid(t, "1", response, err)
	if got := a.arrived()[0].key; got != "order-1-of-the-caller" {
		t.Errorf("key %s arrived", got)
	}
	r = post(t, a.URL+"/payments", "2") // another request under the same key
	r.Header.Set("Idempotency-Key", "order-1-of-the-caller")
	_, err = c.Do("", r)
	if e := as[*client.MismatchError](t, err); e.Status != 422 || a.effectsOf("2") != 0 {
		t.Errorf("%+v, %d effects", e, a.effectsOf("2"))
	}
	for _, keys := range [][]string{{"a", "b"}, {""}} {
		r = post(t, a.URL+"/payments", "3")
		r.Header["Idempotency-Key"] = keys
		if _, err := c.Do("", r); err == nil || !strings.Contains(err.Error(), "nothing was sent") || a.effectsOf("3") != 0 {
			t.Errorf("keys %q: %v", keys, err)
		}
	}
}

// An attempt that takes too long is still running at the API: the client waits for it, and
// gets its answer.
func TestWaitsForARequestInFlight(t *testing.T) {
	t.Parallel()
	for _, profile := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
		release := make(chan struct{})
		a := newAPI(t, &httpkey.Options{Profile: profile}, keyed, func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"paid":"1"}`)
		})
		var waited atomic.Int32
		c := newClient(t, client.Options{
			AttemptTimeout: 300 * time.Millisecond, Profile: client.Profile(profile.Name),
			Backoff: func(_, _ time.Duration, _ int, r *http.Response) time.Duration {
				if r != nil && r.StatusCode == http.StatusConflict && waited.Add(1) == 2 {
					close(release)
				}
				return time.Millisecond
			},
		})
		response, err := c.Do("", post(t, a.URL+"/payments", "1"))
		paid(t, "1", response, err)
		if !client.Replayed(response) || a.effectsOf("1") != 1 || waited.Load() < 2 {
			t.Errorf("%s: %d effects, waited %d times", profile.Name, a.effectsOf("1"), waited.Load())
		}
		for _, r := range a.arrived() { // without a Location the request itself asks
			if r.method != http.MethodPost || r.body != `{"order":"1"}` {
				t.Errorf("%s: it asks by %+v", profile.Name, r)
			}
		}
	}
}

// If the time is over before the first request ends, the error says that it is running.
func TestInFlightErrorSaysSo(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newAPI(t, nil, keyed, func(w http.ResponseWriter, _ *http.Request) { <-release; w.WriteHeader(http.StatusCreated) })
	t.Cleanup(func() { close(release) })
	c := newClient(t, client.Options{AttemptTimeout: time.Second, MaxElapsed: 3 * time.Second})
	_, err := c.Do("order-1", post(t, a.URL+"/payments", "1"))
	e := as[*client.InFlightError](t, err)
	if e.Operation != "order-1" || e.Key == "" || e.RetryAfter < time.Second || strings.Contains(err.Error(), strings.Trim(e.Key, `"`)) {
		t.Errorf("%+v: %v", e, err)
	}
}

// A request that is stored and run later is followed to its status resource.
func TestFollowsAcceptedRequests(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"/payments/status/", "http://127.0.0.1:1/elsewhere/", ""} {
		o := &httpkey.Options{Async: true}
		if place != "" {
			o.StatusURL = func(_ *http.Request, key string) string { return place + url.PathEscape(key) }
		}
		a := newAPI(t, o, keyed, nil)
		worker, err := httpkey.NewWorker(a.guard, map[string]http.Handler{"POST /payments": a.guard.Handler(http.HandlerFunc(a.serve))}, nil)
		must(t, err)
		var once sync.Once
		c := newClient(t, client.Options{
			Authorize: func(r *http.Request) error { r.Header.Set("Authorization", "Bearer me"); return nil },
			Backoff: func(_, _ time.Duration, _ int, _ *http.Response) time.Duration {
				once.Do(func() {
					if n, err := worker.RunOnce(t.Context()); n != 1 || err != nil {
						t.Errorf("the worker ran %d requests: %v", n, err)
					}
				})
				return time.Millisecond
			},
		})
		response, err := c.Do("", post(t, a.URL+"/payments", "1"))
		paid(t, "1", response, err)
		posts := len(a.arrived())
		if want := map[bool]int{true: 1, false: 2}[place == "/payments/status/"]; posts != want || a.effectsOf("1") != 1 {
			t.Errorf("place %q: %d POSTs, want %d; %d effects", place, posts, want, a.effectsOf("1"))
		}
	}
}

// An outcome that the API does not know is not asked for again and again, and never with
// another key.
func TestUnknownOutcomeStops(t *testing.T) {
	t.Parallel()
	for _, profile := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
		a := newAPI(t, &httpkey.Options{Profile: profile}, retrysafe.Policy{OnFailure: retrysafe.FailureByProof}, func(http.ResponseWriter, *http.Request) { panic("it fails in the middle") })
		c := newClient(t, client.Options{Profile: client.Profile(profile.Name)})
		_, err := c.Do("order-1", post(t, a.URL+"/payments", "1"))
		e := as[*client.UnknownError](t, err)
		if e.TooOld || e.Operation != "order-1" || a.effectsOf("1") != 1 || len(a.arrived()) > 2 {
			t.Errorf("%s: %+v, %d requests", profile.Name, e, len(a.arrived()))
		}
	}
}

// Without a connection nothing happened, and the error says that.
func TestNotSentIsToldApart(t *testing.T) {
	t.Parallel()
	port := porthold.New(t)
	c := newClient(t, client.Options{MaxTries: 3})
	_, err := c.Do("", post(t, "http://"+port.Addr()+"/payments", "1"))
	if e := as[*client.ExhaustedError](t, err); e.MayHaveHappened || e.Tries != 3 || !strings.Contains(err.Error(), "it was not executed") {
		t.Errorf("%+v: %v", e, err)
	}
	lost := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hangUp() }))
	t.Cleanup(lost.Close)
	_, err = c.Do("", post(t, lost.URL+"/payments", "1"))
	if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || e.Tries != 3 || !strings.Contains(err.Error(), "may have been executed") {
		t.Errorf("%+v: %v", e, err)
	}
}

// A login that expires between two attempts does not prove that the first was not executed.
func TestARefusalAfterALostAnswerIsNotTheAnswer(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			hangUp()
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{})
	_, err := c.Do("", post(t, server.URL, "1"))
	if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || e.Status != 401 {
		t.Errorf("%+v", e)
	}
	response, err := c.Do("", post(t, server.URL, "1")) // alone it is an answer like any other
	if err != nil || response.StatusCode != 401 {
		t.Errorf("%v, %v", response, err)
	}
}

// An API that ignores keys is never sent a request again that it may have executed.
func TestKeysIgnored(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		switch r.URL.Path {
		case "/lost":
			hangUp()
		case "/failed":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/conflict":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusConflict)
		case "/busy":
			if n.Load() == 1 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}
	}))
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{Profile: client.KeysIgnored})
	_, err := c.Do("", post(t, server.URL+"/lost", "1"))
	if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || e.Tries != 1 || n.Load() != 1 {
		t.Errorf("%+v, %d requests", e, n.Load())
	}
	for path, want := range map[string]struct {
		status int
		sent   int32
	}{"/failed": {503, 1}, "/conflict": {409, 1}, "/busy": {200, 2}} {
		n.Store(0)
		response, err := c.Do("", post(t, server.URL+path, "1"))
		if err != nil || response.StatusCode != want.status || n.Load() != want.sent {
			t.Errorf("%s: %v, %v, %d requests", path, response, err, n.Load())
		}
	}
	port := porthold.New(t)
	_, err = c.Do("", post(t, "http://"+port.Addr(), "1"))
	if e := as[*client.ExhaustedError](t, err); e.MayHaveHappened || e.Tries < 2 {
		t.Errorf("%+v", e)
	}
}

// A redirect that keeps the method is the same operation, so it has the same key.
func TestARedirectKeepsTheKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil, keyed, nil)
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Key", r.Header.Get("Idempotency-Key"))
		http.Redirect(w, r, a.URL+"/payments", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(first.Close)
	for _, path := range []string{"", t.TempDir() + "/journal"} {
		o := client.Options{}
		if path != "" {
			o.Journal = openJournal(t, path)
		}
		c := newClient(t, o)
		order := "redirected" + fmt.Sprint(len(path) > 0)
		var keys []string
		h := http.Client{Transport: c, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			keys = append(keys, r.Response.Header.Get("X-Key"))
			return nil
		}}
		r := post(t, first.URL, order)
		for range 2 { // with a journal the second call finds the redirect there
			again := post(t, first.URL, order).WithContext(client.WithOperation(r.Context(), order))
			response, err := h.Do(again)
			paid(t, order, response, err)
		}
		arrived := a.arrived()
		if got := arrived[len(arrived)-1].key; got != keys[1] || path != "" && (keys[0] != keys[1] || a.effectsOf(order) != 1) {
			t.Errorf("key %s arrived behind the redirect, want %q; %d effects", got, keys, a.effectsOf(order))
		}
	}
	response, err := newClient(t, client.Options{}).Do("", post(t, first.URL, "not followed"))
	if err != nil || response.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("Do followed a redirect: %v, %v", response, err)
	}
}

// Requests that need no key go through as they are.
func TestOtherMethodsPassUntouched(t *testing.T) {
	t.Parallel()
	want := errors.New("as it was")
	var got *http.Request
	c := newClient(t, client.Options{Base: roundTrip(func(r *http.Request) (*http.Response, error) { got = r; return nil, want })})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1/1", nil)
	must(t, err)
	if _, err := c.RoundTrip(r); !errors.Is(err, want) || got != r {
		t.Errorf("%v", err)
	}
}

// A caller that gives up gets its own reason, and learns that the request may have been
// executed.
func TestTheCallersContextEndsTheCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{})
	_, err := c.Do("", post(t, server.URL, "1").WithContext(ctx))
	if e := as[*client.ExhaustedError](t, err); !errors.Is(err, context.Canceled) || !e.MayHaveHappened || e.Tries != 1 {
		t.Errorf("%+v", e)
	}
	_, err = c.Do("", post(t, server.URL, "1").WithContext(ctx))
	if e := as[*client.ExhaustedError](t, err); !errors.Is(err, context.Canceled) || e.MayHaveHappened || e.Tries != 0 {
		t.Errorf("%+v", e)
	}
}

// An answer above the limit is passed on as it arrives; one that is cut off below it is asked
// for again.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	const size = 300_000
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if n.Add(1) == 1 {
			_, _ = io.WriteString(w, strings.Repeat("x", size/2))
			hangUp()
		}
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	}))
	t.Cleanup(server.Close)
	for limit, want := range map[int64]int32{1 << 20: 2, 1000: 1} {
		n.Store(2 - want)
		j := openJournal(t, t.TempDir()+"/journal")
		c := newClient(t, client.Options{MaxAnswer: limit, AttemptTimeout: time.Minute, Journal: j})
		for range 2 { // the second from the journal, or from the API if it was too large
			response, err := c.Do("large", post(t, server.URL, "1"))
			must(t, err)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || len(body) != size {
				t.Errorf("limit %d: %d bytes, %v", limit, len(body), err)
			}
		}
	}
}
