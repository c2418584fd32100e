package httpkey_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// key is a key that no option complains about; other are as good.
const (
	key   = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	other = "f2a0d6f4-9a51-4b7c-8f0e-2b6c1c6a7d10"
)

// config is what a test may change before the guard is built.
type config struct {
	httpkey.Options
	engine  retrysafe.Options
	store   memstore.Options
	scope   httpkey.ScopeFunc
	handler http.HandlerFunc
}

// bundle is a guarded handler over a store that can be made to fail.
type bundle struct {
	http.Handler
	guard  *httpkey.Guard
	engine *retrysafe.Engine
	mem    *memstore.Store
	fault  *faultstore.Store
	runs   atomic.Int32
	log    *journal

	mu       sync.Mutex
	findings []httpkey.Notice
}

// counting is a store that can fail and can count.
type counting struct {
	*faultstore.Store
	mem *memstore.Store
}

func (c counting) Count(ctx context.Context, scope string) (int, error) {
	return c.mem.Count(ctx, scope)
}

var errAnonymous = errors.New("nobody is logged in")

// tenant is the scope of the tests: what authentication would have found out.
func tenant(r *http.Request) (string, error) {
	switch who := r.Header.Get("X-Tenant"); who {
	case "":
		return "acme", nil
	case "anonymous":
		return "", errAnonymous
	default:
		return who, nil
	}
}

// created answers 201 with the number of the run, so that a second run shows.
func (b *bundle) created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"run":%d}`, b.runs.Load())
}

func setup(t *testing.T, change ...func(*config)) *bundle {
	t.Helper()
	b := &bundle{log: new(journal)}
	c := config{scope: tenant, handler: b.created}
	c.Logger = slog.New(slog.NewTextHandler(b.log, nil))
	c.Report = func(f httpkey.Notice) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.findings = append(b.findings, f)
	}
	for _, f := range change {
		f(&c)
	}
	b.mem = memstore.New(&c.store)
	b.fault = faultstore.New(b.mem)
	var err error
	b.engine, err = retrysafe.New(counting{b.fault, b.mem}, &c.engine)
	must(t, err)
	b.guard, err = httpkey.New(b.engine, c.scope, &c.Options)
	must(t, err)
	b.Handler = b.guard.Handler(b.counted(c.handler))
	return b
}

// counted counts the runs of a handler.
func (b *bundle) counted(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.runs.Add(1)
		h(w, r)
	})
}

// journal is where the guard logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isProfile(p *httpkey.Profile) func(*config) {
	return func(c *config) { c.Profile = p }
}

func withPolicy(p retrysafe.Policy) func(*config) {
	return func(c *config) { c.engine.Policy = p }
}

func withHandler(h http.HandlerFunc) func(*config) {
	return func(c *config) { c.handler = h }
}

// response is an answer, read whole.
type response struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

// request makes a POST of JSON under a key; change may make it anything else.
func request(t *testing.T, k, body string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if k != "" {
		r.Header.Set("Idempotency-Key", k)
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func to(target string) func(*http.Request) {
	return func(r *http.Request) {
		u := httptest.NewRequestWithContext(r.Context(), r.Method, target, nil).URL
		r.URL, r.RequestURI = u, target
	}
}

func method(m string) func(*http.Request) {
	return func(r *http.Request) { r.Method = m }
}

// do serves a request without a network.
func (b *bundle) do(r *http.Request) *response {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return read(w.Result())
}

// post is the request that most tests send.
func (b *bundle) post(t *testing.T, k, body string, change ...func(*http.Request)) *response {
	t.Helper()
	return b.do(request(t, k, body, change...))
}

func read(res *http.Response) *response {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		body = append(body, "<"+err.Error()+">"...)
	}
	return &response{res.StatusCode, res.Header, res.Trailer, string(body)}
}

// problem is what a refusal says, in either envelope.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Code       string `json:"code"`
	Retryable  bool   `json:"retryable"`
	SafeNewKey bool   `json:"safe_new_key"`
	Error      struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
		DocURL  string `json:"doc_url"`
	} `json:"error"`
}

func (r *response) problem(t *testing.T) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("%d %q is no problem: %v", r.status, r.body, err)
	}
	return p
}

// refused fails unless the response is the refusal with this status and code.
func (r *response) refused(t *testing.T, status int, code string) problem {
	t.Helper()
	if r.status != status || !strings.Contains(r.header.Get("Link"), "/"+code) {
		t.Fatalf("got %d %v %s, want %d %s", r.status, r.header, r.body, status, code)
	}
	for name, values := range r.header {
		if values[0] == "" {
			t.Errorf("the refusal has an empty %s", name)
		}
	}
	switch code {
	case "attempt-failed", "no-answer", "not-committed", "not-in-transaction", "outcome-pending": // there is nothing to wait for
		if after := r.header.Get("Retry-After"); after != "1" {
			t.Errorf("%s tells its client to ask again after %q", code, after)
		}
	}
	return r.problem(t)
}

// ran fails unless the response is that of the given run of created.
func (r *response) ran(t *testing.T, run int, replayed bool) {
	t.Helper()
	if want := fmt.Sprintf(`{"run":%d}`, run); r.status != http.StatusCreated || r.body != want {
		t.Fatalf("got %d %s, want 201 %s", r.status, r.body, want)
	}
	if got := r.header.Get("Idempotent-Replayed") == "true"; got != replayed {
		t.Fatalf("replayed is %v, want %v", got, replayed)
	}
}

// same fails unless two answers are the same in all that is promised.
func (r *response) same(t *testing.T, first *response) {
	t.Helper()
	if r.status != first.status || r.body != first.body {
		t.Fatalf("got %d %q, want %d %q", r.status, r.body, first.status, first.body)
	}
	for _, name := range []string{"Content-Type", "Location", "Etag", "Content-Encoding", "Idempotency-Expires"} {
		if got, want := r.header[name], first.header[name]; strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%s is %q, want %q", name, got, want)
		}
	}
}

func (b *bundle) ranTimes(t *testing.T, want int) {
	t.Helper()
	if got := int(b.runs.Load()); got != want {
		t.Fatalf("the handler ran %d times, want %d", got, want)
	}
}

// records returns all that is stored.
func (b *bundle) records(t *testing.T) []retrysafe.Record {
	t.Helper()
	all, err := b.mem.List(context.WithoutCancel(t.Context()), retrysafe.Query{Limit: retrysafe.MaxList})
	must(t, err)
	return all
}

// untouched fails if the handler ran or anything was reserved.
func (b *bundle) untouched(t *testing.T) {
	t.Helper()
	b.ranTimes(t, 0)
	if all := b.records(t); len(all) != 0 {
		t.Fatalf("%d records are stored, want none: %+v", len(all), all)
	}
}

// state returns the record of the key that most tests use.
func (b *bundle) state(t *testing.T) retrysafe.Record {
	t.Helper()
	r, err := b.mem.Load(context.WithoutCancel(t.Context()), retrysafe.Ref{Scope: "acme", Key: key})
	must(t, err)
	return r
}

// plant stores a record that some earlier process left behind: it is made by a
// request, so that its fingerprint is right, and then changed.
func (b *bundle) plant(t *testing.T, change func(*retrysafe.Write)) {
	t.Helper()
	if got := b.post(t, key, `{"a":1}`); got.status != http.StatusCreated {
		t.Fatalf("cannot plant: %d %s", got.status, got.body)
	}
	r := b.state(t).Update()
	r.State, r.Result, r.Term = retrysafe.StateInProgress, nil, time.Minute
	change(&r)
	_, err := b.mem.Swap(t.Context(), r)
	must(t, err)
	b.runs.Store(0)
}

func (b *bundle) found(code string) (enforced, observed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.findings {
		switch {
		case f.Code != code:
		case f.Enforced:
			enforced++
		default:
			observed++
		}
	}
	return enforced, observed
}

// serve starts a server on the loopback interface.
func (b *bundle) serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	return s
}

// send sends a request over the network.
func send(t *testing.T, s *httptest.Server, k, body string, change ...func(*http.Request)) *response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/payments", strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if k != "" {
		r.Header.Set("Idempotency-Key", k)
	}
	for _, f := range change {
		f(r)
	}
	res, err := s.Client().Do(r)
	must(t, err)
	return read(res)
}

// raw opens a connection that speaks whatever the test writes.
func raw(t *testing.T, s *httptest.Server) *net.TCPConn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(time.Minute))) // a test that hangs should say where
	return c.(*net.TCPConn)
}

// talk writes text and returns all the responses that come back until the
// server closes; the text should ask it to.
func talk(t *testing.T, s *httptest.Server, text string) []*response {
	t.Helper()
	c := raw(t, s)
	_, _ = io.WriteString(c, text) // a server that has heard enough may close before the end
	var all []*response
	for in := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return all
		}
		all = append(all, read(res))
	}
}

// discard is a logger that drops every line.
var discard = slog.New(slog.DiscardHandler)

// quickSettle makes an answer that the store does not take an answer that is
// pending at once, for tests that cannot turn the clock.
func quickSettle(c *config) { c.engine.SettleTimeout = time.Nanosecond }

// patient gives the store time enough under many requests at once, also on a busy
// machine.
func patient(c *config) { c.engine.StoreTimeout, c.engine.SettleTimeout = time.Minute, time.Minute }
