package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Keys that no option complains about.
const (
	key   = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	other = "f2a0d6f4-9a51-4b7c-8f0e-2b6c1c6a7d10"
)

// bundle is a gateway on a port, before an upstream on another.
type bundle struct {
	*gateway.Gateway
	url      string
	client   *http.Client
	upstream *upstream
	store    retrysafe.Store
	config   config.Config
	parts    gateway.Parts
	log      *journal

	mu    sync.Mutex
	ended []gateway.Exchange
	told  chan gateway.Exchange // each of them, if a test wants to wait
}

// upstream is a service that counts.
type upstream struct {
	url     string
	handler http.HandlerFunc
	calls   atomic.Int32
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.calls.Add(1)
	u.handler(w, r)
}

func (u *upstream) called(t *testing.T, want int) {
	t.Helper()
	if got := int(u.calls.Load()); got != want {
		t.Fatalf("the upstream was called %d times, want %d", got, want)
	}
}

// created answers 201 with what it was asked for.
func created(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", r.URL.Path+"/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"got":`+string(body)+`}`)
}

// settings are guarded ones, as the configuration has them by default.
func settings(change ...func(*config.Settings)) config.Settings {
	s := config.Settings{Required: true, Timeout: 30 * time.Second}
	for _, f := range change {
		f(&s)
	}
	return s
}

func keyed(s *config.Settings) {
	s.Policy.Effects = retrysafe.EffectsKeyed
	s.ForwardKey = "Idempotency-Key"
}

// waiting lets a retry wait for the first attempt, also on a busy machine.
func waiting(s *config.Settings) {
	s.Policy.InFlight, s.Policy.Wait = retrysafe.InFlightWait, time.Minute
}

func route(match string, change ...func(*config.Settings)) config.Route {
	return config.Route{Match: match, Settings: settings(change...)}
}

// withRoutes replaces the routes.
func withRoutes(routes ...config.Route) func(*bundle) {
	return func(b *bundle) { b.config.Routes = routes }
}

// answering is what the upstream does.
func answering(h http.HandlerFunc) func(*bundle) {
	return func(b *bundle) { b.upstream.handler = h }
}

// at has another upstream than the counting one.
func at(url string) func(*bundle) { return func(b *bundle) { b.config.Upstream = url } }

// build makes all but the gateway's own server.
func build(t testing.TB, change ...func(*bundle)) *bundle {
	t.Helper()
	b := &bundle{upstream: &upstream{handler: created}, log: new(journal), told: make(chan gateway.Exchange, 10_000)}
	b.config = config.Config{
		Tenant:   config.Tenant{From: "header", Name: "X-Tenant-Id", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Server:   config.Server{DialTimeout: time.Minute}, // on a busy machine a handshake takes long
		Defaults: settings(),
		Routes:   []config.Route{route("POST /payments"), route("POST /keyed", keyed)},
	}
	b.parts.Store = memstore.New(nil)
	b.parts.Logger = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b.parts.Exchange = func(x gateway.Exchange) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = append(b.ended, x)
		select {
		case b.told <- x:
		default:
		}
	}
	for _, f := range change {
		f(b)
	}
	b.store = b.parts.Store
	if b.config.Upstream == "" {
		server := httptest.NewServer(b.upstream)
		t.Cleanup(server.Close)
		b.config.Upstream, b.upstream.url = server.URL, server.URL
	}
	var err error
	b.Gateway, err = gateway.New(&b.config, b.parts)
	must(t, err)
	t.Cleanup(func() {
		if err := b.Drain(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	return b
}

// setup is build with a server and a client.
func setup(t testing.TB, change ...func(*bundle)) *bundle {
	t.Helper()
	b := build(t, change...)
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url, b.client = server.URL, server.Client()
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return b
}

// run runs the background of the gateway until the test ends.
func (b *bundle) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// response is an answer, read whole.
type response struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	err     error // of reading the body
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func without(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Del(name) }
}

func (b *bundle) request(t testing.TB, method, target, body string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+target, strings.NewReader(body))
	must(t, err)
	r.Header.Set("X-Tenant-Id", "acme")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func (b *bundle) do(t testing.TB, r *http.Request) *response {
	t.Helper()
	res, err := b.client.Do(r)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return &response{res.StatusCode, res.Header, res.Trailer, string(text), err}
}

func (b *bundle) get(t testing.TB, target string, change ...func(*http.Request)) *response {
	t.Helper()
	return b.do(t, b.request(t, http.MethodGet, target, "", change...))
}

// post sends a request under a key.
func (b *bundle) post(t testing.TB, target, key, body string, change ...func(*http.Request)) *response {
	t.Helper()
	return b.do(t, b.request(t, http.MethodPost, target, body, append([]func(*http.Request){with("Idempotency-Key", key)}, change...)...))
}

// refused fails unless the response is the refusal with this status and code.
func (r *response) refused(t testing.TB, status int, code string) {
	t.Helper()
	var p struct{ Code string }
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.status != status || p.Code != code {
		t.Fatalf("got %d %v %s, want %d %s", r.status, r.header, r.body, status, code)
	}
}

// is fails unless the response is the answer, replayed or not.
func (r *response) is(t testing.TB, status int, body string, replayed bool) {
	t.Helper()
	if r.status != status || r.body != body || r.err != nil {
		t.Fatalf("got %d %q %v, want %d %q", r.status, r.body, r.err, status, body)
	}
	if got := r.header.Get("Idempotent-Replayed") == "true"; got != replayed {
		t.Fatalf("replayed is %v, want %v", got, replayed)
	}
}

// state returns the record of a key of the tenant that most tests are.
func (b *bundle) state(t testing.TB, key string) retrysafe.Record {
	t.Helper()
	r, err := b.store.Load(context.WithoutCancel(t.Context()), retrysafe.Ref{Scope: "header:acme", Key: key})
	must(t, err)
	return r
}

func (b *bundle) is(t testing.TB, key string, want retrysafe.State) {
	t.Helper()
	if got := b.state(t, key); got.State != want {
		t.Fatalf("the record is %s (%s), want %s", got.State, got.Reason, want)
	}
}

// records returns all that is stored.
func (b *bundle) records(t testing.TB) []retrysafe.Record {
	t.Helper()
	all, err := b.store.List(context.WithoutCancel(t.Context()), retrysafe.Query{Limit: retrysafe.MaxList})
	must(t, err)
	return all
}

// last waits for the end of one more request and returns it.
func (b *bundle) last(t testing.TB) gateway.Exchange {
	t.Helper()
	select {
	case x := <-b.told:
		return x
	case <-t.Context().Done():
		t.Fatal("no request has ended")
		return gateway.Exchange{}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// journal is where the gateway logs.
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
