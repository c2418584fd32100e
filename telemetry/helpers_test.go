package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storekit"
	"github.com/retrysafe/retrysafe/store/tiered"
	"github.com/retrysafe/retrysafe/telemetry"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// shown returns every series and its value; of a histogram, how many it has counted.
// The registry is the strict one: what is collected must be what was described.
func shown(t *testing.T, m prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range must(registry.Gather())(t) {
		for _, one := range family.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			all[name] = one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// moved returns the series that do differs in, and by how much.
func moved(t *testing.T, m prometheus.Collector, do func()) map[string]float64 {
	t.Helper()
	before := shown(t, m)
	do()
	after := shown(t, m)
	maps.DeleteFunc(after, func(name string, v float64) bool { return v == before[name] })
	for name := range after {
		after[name] -= before[name]
	}
	return after
}

func wantSeries(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s = %v (shown: %v), want %v", name, g, ok, v)
		}
	}
}

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape is answered with %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// world is all that can be shown, at work over one store whose clock can be set.
type world struct {
	retrysafe.WallClock
	store      *memstore.Store
	cache      tiered.Store
	engine     *retrysafe.Engine
	guard      *httpkey.Guard
	sweeper    *janitor.Sweeper
	reaper     *janitor.Reaper
	reconciler *janitor.Reconciler
	worker     *outbox.Worker
	counting   []janitor.Duty // the duties that count unknown outcomes

	mu  sync.Mutex
	now time.Time
}

func newWorld(t *testing.T, o retrysafe.Observer) *world {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	w := &world{now: time.Now()}
	w.store = memstore.New(&memstore.Options{Now: w.Now})
	w.cache = tiered.New(w.store, nil)
	w.engine = must(retrysafe.New(w.cache, &retrysafe.Options{Observer: o}))(t)
	w.guard = must(httpkey.New(w.engine, func(*http.Request) (string, error) { return "tenant", nil }, &httpkey.Options{Logger: quiet}))(t)
	duty := janitor.Options{Observer: o, Logger: quiet}
	w.sweeper = janitor.NewSweeper(w.store, &duty)
	reaping := duty
	reaping.Clock = w // a reaper believes no store's clock that is far ahead of its own
	w.reaper = janitor.NewReaper(w.store, &janitor.ReaperOptions{Options: reaping})
	w.reconciler = janitor.NewReconciler(w.store, janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
		return janitor.Happened(retrysafe.Result{Status: http.StatusCreated}, "the provider has it"), nil
	}), &janitor.ReconcilerOptions{Options: duty})
	sink := outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt { return outbox.Receipt{} })
	w.worker = must(outbox.NewWorker(w.store.Outbox(), sink, &outbox.Options{Logger: quiet}))(t)
	return w
}

// show lets metrics see all of it.
func (w *world) show(m *telemetry.Metrics) (forget func()) {
	all := []func(){
		m.Janitor(w.sweeper, w.reaper, w.reconciler), m.Outbox(w.worker, w.store.Outbox()),
		m.Cache(w.cache), m.SharedCache(func() (hits, misses uint64) { return 3, 4 }), m.Batches(batches), w.unknowns(m), m.Guard(w.guard), m.Guard(limited{}), m.Guard(reloading{refused: true}), m.Webhook("stripe", w.guard), m.Store(w.engine.Healthy), m.Ledgers(ledgers),
	}
	return func() {
		for _, f := range slices.Backward(all) {
			f()
		}
	}
}

func batches() storekit.BatchStats {
	return storekit.BatchStats{Batches: 10, Requests: 25, InFlight: 2, Waiting: 3}
}

func (w *world) unknowns(m *telemetry.Metrics) (forget func()) {
	duty, forget := m.Unknowns(w.store, slog.New(slog.DiscardHandler))
	w.counting = append(w.counting, duty)
	return forget
}

// Now is the time of the store, and of the machine that the reaper runs on.
func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// post sends a request; without a key it is refused.
func (w *world) post(key, body string) int {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.Pattern = "POST /payments"
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res := httptest.NewRecorder()
	w.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	})).ServeHTTP(res, r)
	return res.Code
}

func once(t *testing.T, d janitor.Duty) {
	t.Helper()
	must(d.RunOnce(t.Context()))(t)
}

// live lets everything happen once that there is a number for.
func (w *world) live(t *testing.T) {
	t.Helper()
	const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	for i, want := range []int{201, 201, 422, 400} {
		if got := w.post([]string{key, key, key, ""}[i], []string{"a", "a", "b", "a"}[i]); got != want {
			t.Fatalf("request %d is answered with %d, want %d", i, got, want)
		}
	}

	// An owner falls silent, a resolver finds that the operation has happened, and in
	// the end both keys are forgotten.
	crashed := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "crashed"}, Operation: "POST /payments"}
	if x, _, err := w.engine.Begin(t.Context(), crashed); x == nil {
		t.Fatal(err)
	}
	w.pass(time.Hour)
	once(t, w.sweeper)
	for _, d := range w.counting {
		once(t, d)
	}
	w.pass(time.Hour)
	once(t, w.reconciler)
	w.pass(72 * time.Hour)
	once(t, w.reaper)

	tx := must(w.store.Begin(t.Context()))(t)
	if err := tx.Enqueue(t.Context(), outbox.Message{Topic: "paid", Payload: []byte("1")}, outbox.Message{Topic: "paid", Payload: []byte("2"), Wait: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(w.worker.RunOnce(t.Context()))(t)
}
