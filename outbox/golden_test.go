package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/httpsink"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The golden path: reserve, business write and message in one commit, a worker calls
// the provider under the downstream key, the provider's answer becomes the key's, and
// retries replay it.

// provider charges once for each key, and forgets to answer as often as it is told.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	charges map[string]string // by key
	bodies  map[string]bool
	calls   int
	silent  int // calls that are carried out and not answered
}

func newProvider(t *testing.T) *provider {
	p := &provider{charges: map[string]string{}, bodies: map[string]bool{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	key := r.Header.Get("Idempotency-Key")
	if p.charges[key] == "" {
		p.charges[key] = fmt.Sprintf("ch_%d", len(p.charges)+1)
	}
	p.bodies[string(body)] = true
	if p.calls <= p.silent {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, p.charges[key])
}

func (p *provider) sink(t *testing.T) *httpsink.Sink {
	t.Helper()
	sink, err := httpsink.New(httpsink.To(httpsink.Endpoint{URL: p.URL + "/charges"}), &httpsink.Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PlainHTTP: true,
		Read: func(_ *outbox.Delivery, r *httpsink.Response, receipt *outbox.Receipt) {
			var charge struct{ ID string }
			_ = json.Unmarshal(r.Body, &charge)
			receipt.ProviderRef = charge.ID
		},
	})
	must(t, err)
	t.Cleanup(sink.Close)
	return sink
}

// shop is an API whose transfers go through the outbox.
type shop struct {
	http.Handler
	store *memstore.Store
	rows  []string // transfers, under the store's locks
}

func newShop(t *testing.T) *shop {
	s := &shop{store: memstore.New(nil)}
	engine, err := retrysafe.New(s.store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}})
	must(t, err)
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "tenant", nil }, &httpkey.Options{
		StatusURL: func(_ *http.Request, key string) string { return "/transfers/" + key },
	})
	must(t, err)
	s.Handler = guard.Handler(http.HandlerFunc(s.transfer))
	return s
}

func (s *shop) transfer(_ http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	body, _ := io.ReadAll(r.Body)
	x, _ := retrysafe.FromContext(ctx)
	tx, err := s.store.Begin(ctx)
	if err != nil {
		panic(err)
	}
	tx.OnCommit(func() { s.rows = append(s.rows, string(body)) })
	rec, err := x.HandOver(ctx, tx, 21*time.Hour)
	if err != nil {
		return
	}
	err = tx.Enqueue(ctx, outbox.Message{Topic: "charges", Key: x.DownstreamKey("charge"), Payload: body, Settles: &rec})
	if err != nil {
		return
	}
	_ = tx.Commit(ctx)
}

func (s *shop) post(body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/transfers", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93"`)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestSeed001_GoldenPath also has the provider carry out calls whose answers are
// lost, and W64: the same call again, under the same key, with the same bytes.
func TestSeed001_GoldenPath(t *testing.T) {
	t.Parallel()
	s, p := newShop(t), newProvider(t)
	p.silent = 2
	const body = `{"amount":1200}`
	for range 2 { // until there is an answer a retry gets what the first request got
		if w := s.post(body); w.Code != http.StatusAccepted || w.Header().Get("Location") != "/transfers/8e03978e-40d5-43dd-bc93" || w.Header().Get("Retry-After") == "" {
			t.Fatalf("got %d %v %s, want 202", w.Code, w.Header(), w.Body)
		}
	}
	if w := s.post(`{"amount":9900}`); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("another request got %d", w.Code)
	}
	w, err := outbox.NewWorker(s.store.Outbox(), p.sink(t), &outbox.Options{Backoff: outbox.Backoff{First: time.Millisecond, Longest: time.Millisecond}})
	must(t, err)
	for range 3 { // two in vain
		_, err := w.RunOnce(context.Background())
		must(t, err)
		time.Sleep(10 * time.Millisecond)
	}
	first := s.post(body)
	if first.Code != http.StatusCreated || first.Body.String() != `{"id":"ch_1"}` || first.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %v %s", first.Code, first.Header(), first.Body)
	}
	if again := s.post(body); again.Body.String() != first.Body.String() {
		t.Errorf("another retry got %s", again.Body)
	}
	if len(p.charges) != 1 || p.calls != 3 || len(p.bodies) != 1 || len(s.rows) != 1 {
		t.Errorf("%d charges by %d calls with %d bodies, %d rows", len(p.charges), p.calls, len(p.bodies), len(s.rows))
	}
	rec, err := s.store.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: "8e03978e-40d5-43dd-bc93"})
	must(t, err)
	if rec.ProviderRef != "ch_1" {
		t.Errorf("the provider's id is %q", rec.ProviderRef)
	}
}
