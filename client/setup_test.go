package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// An api takes payments behind a guard, and counts them.
type api struct {
	*httptest.Server
	guard *httpkey.Guard

	mu       sync.Mutex
	effects  map[string]int // by order
	requests []seen         // as they arrived before the guard
	pay      http.HandlerFunc
}

// seen is a request that has arrived.
type seen struct {
	method, key, firstSent, authorization string
	body                                  string
}

// newAPI starts an API. Pay runs behind the guard, with the effect made; nil answers with a
// 201.
func newAPI(t *testing.T, o *httpkey.Options, policy retrysafe.Policy, pay http.HandlerFunc) *api {
	t.Helper()
	if o == nil {
		o = new(httpkey.Options)
	}
	o.Logger = slog.New(slog.DiscardHandler)
	engine, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{Policy: policy})
	must(t, err)
	a := &api{effects: map[string]int{}, pay: pay}
	a.guard, err = httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil }, o)
	must(t, err)
	guarded := a.guard.Handler(http.HandlerFunc(a.serve))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /warm", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /payments/status/{key}", a.guard.Status("POST /payments"))
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the client is gone; the guard would say so too
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		a.mu.Lock()
		a.requests = append(a.requests, seen{r.Method, r.Header.Get("Idempotency-Key"), r.Header.Get("Idempotency-First-Sent"), r.Header.Get("Authorization"), string(body)})
		a.mu.Unlock()
		guarded.ServeHTTP(w, r)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// keyed is the policy of operations whose effects honour a key, so that they may run again.
var keyed = retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	var order struct{ Order string }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.effects[order.Order]++
	a.mu.Unlock()
	if a.pay != nil {
		a.pay(w, r)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"paid":%q}`, order.Order)
}

func (a *api) effectsOf(order string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.effects[order]
}

func (a *api) arrived() []seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]seen(nil), a.requests...)
}

// newTransport returns a transport whose connections end with the test.
func newTransport(t testing.TB) *http.Transport {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// newClient returns a client that waits milliseconds between attempts.
func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	if o.Base == nil {
		o.Base = newTransport(t)
	}
	if o.MinWait == 0 {
		o.MinWait, o.MaxWait = time.Millisecond, 20*time.Millisecond
	}
	c, err := client.New(&o)
	must(t, err)
	return c
}

func openJournal(t testing.TB, path string) *journal.File {
	t.Helper()
	j, err := journal.Open(path, nil)
	must(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

// post returns a request for an order.
func post(t testing.TB, url, order string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"order":%q}`, order)))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// paid fails the test unless the answer is that of the order.
func paid(t testing.TB, order string, response *http.Response, err error) *http.Response {
	t.Helper()
	must(t, err)
	body, err := io.ReadAll(response.Body)
	must(t, err)
	response.Body.Close()
	if want := fmt.Sprintf(`{"paid":%q}`, order); response.StatusCode != http.StatusCreated || string(body) != want {
		t.Fatalf("got %d %s, want 201 %s", response.StatusCode, body, want)
	}
	return response
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as returns the error as one of type E, or fails the test.
func as[E error](t testing.TB, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("got %T: %v, want a %T", err, err, e)
	}
	return e
}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer returns an answer with a body and headers, given as name, value, ….
func answer(status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}
