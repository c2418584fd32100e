package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry"
)

func contains(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }

// families returns the types of what a real scrape has, parsed as Prometheus does.
func families(t *testing.T, text string) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the scrape cannot be parsed: %v", err)
	}
	all := make(map[string]string, len(parsed))
	for name, f := range parsed {
		all[name] = strings.ToLower(f.GetType().String())
	}
	return all
}

func TestScrapeParses(t *testing.T) {
	t.Parallel()
	m := telemetry.New(&telemetry.Options{Tenants: 3, Version: "v1.2.3-\xff\n\""})
	m.Routes("POST /payments", "POST /\"quoted\"\n\\", "POST /ü\xff")
	w := newWorld(t, m.Observer())
	w.show(m)
	w.live(t)
	for _, r := range []string{"POST /payments", "POST /\"quoted\"\n\\", "POST /ü\xff", "else"} {
		m.Exchange(r, "fresh", 201, time.Millisecond)
	}
	text := scrape(t, m)
	got := families(t, text)
	for name, want := range map[string]string{
		"api_idempotency_reserve_created_total": "counter", "retrysafe_request_duration_seconds": "histogram",
		"retrysafe_store_up": "gauge", "go_goroutines": "gauge", "process_resident_memory_bytes": "gauge",
	} {
		if runtime.GOOS != "linux" && strings.HasPrefix(name, "process_") {
			continue
		}
		if got[name] != want {
			t.Errorf("%s is shown as %q, want %q", name, got[name], want)
		}
	}
	if want := `retrysafe_build_info{goversion="` + runtime.Version() + `",version="v1.2.3-�\n\""} 1`; !contains(text, want) {
		t.Errorf("the scrape lacks %s", want)
	}
	if !contains(text, `promhttp_metric_handler_errors_total{cause="gathering"} 0`) {
		t.Error("something could not be gathered")
	}
}

// A program with a registry of its own registers the metrics there.
func TestMetricsInAnotherRegistry(t *testing.T) {
	t.Parallel()
	m, registry := telemetry.New(nil), prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	if err := registry.Register(telemetry.New(nil)); err == nil {
		t.Error("a second set of the same names was registered")
	}
	m.Observer().Observe(retrysafe.Event{Kind: retrysafe.EventReserved})
	got := must(registry.Gather())(t)
	if len(got) < 12 {
		t.Errorf("it shows %d metrics, want at least twelve", len(got))
	}
}

func TestScrapeIsReadOnly(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	first, second := shown(t, m), shown(t, m)
	for name, v := range first {
		if second[name] != v {
			t.Errorf("%s changes from %v to %v by being looked at", name, v, second[name])
		}
	}
}

// Observers and scrapes run concurrently: nothing is lost, nothing counted twice, and
// no counter is ever seen to go back.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 500
	m := telemetry.New(&telemetry.Options{Tenants: 5})
	o := m.Observer()
	server := httptest.NewServer(m.Handler())
	t.Cleanup(server.Close)
	stop := make(chan struct{})
	var working, watching sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			route := []string{"POST /a", "POST /b", "POST /c"}[i%3]
			for n := range each {
				m.Routes(route)
				o.Observe(retrysafe.Event{Kind: retrysafe.EventCompleted, Ref: retrysafe.Ref{Scope: strings.Repeat("t", n%10)}, Operation: route, Took: time.Second})
				m.Exchange(route, "fresh", 200, time.Second)
				m.Guard(counter{"key-reused": 1})()
			}
		})
	}
	for range 2 {
		watching.Go(func() {
			last := 0.0
			for {
				got := shown(t, m)[`retrysafe_guard_findings_total{code="key-reused",enforced="true"}`]
				if got < last {
					t.Errorf("a counter goes back from %v to %v", last, got)
				}
				last = got
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := server.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	working.Wait()
	close(stop)
	watching.Wait()

	sums := map[string]float64{}
	for name, v := range shown(t, m) {
		family, _, _ := strings.Cut(name, "{")
		sums[family] += v
	}
	for _, name := range []string{
		"retrysafe_events_total", "retrysafe_attempt_duration_seconds", "retrysafe_request_duration_seconds",
		"retrysafe_responses_total", "retrysafe_tenant_events_total", "retrysafe_guard_findings_total",
	} {
		if sums[name] != workers*each {
			t.Errorf("%s counts %v, want %d", name, sums[name], workers*each)
		}
	}
}
