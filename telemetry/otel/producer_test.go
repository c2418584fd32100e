package otel_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/telemetry"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// collect returns the metrics that an OpenTelemetry reader gets, by their names.
func collect(tb testing.TB, m *telemetry.Metrics) map[string]metricdata.Metrics {
	tb.Helper()
	producer, err := otel.NewProducer(m)
	if err != nil {
		tb.Fatal(err)
	}
	reader := metric.NewManualReader(metric.WithProducer(producer))
	_ = metric.NewMeterProvider(metric.WithReader(reader))
	var got metricdata.ResourceMetrics
	if err := reader.Collect(tb.Context(), &got); err != nil {
		tb.Fatal(err)
	}
	all := map[string]metricdata.Metrics{}
	for _, s := range got.ScopeMetrics {
		for _, m := range s.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

// The same numbers are in a scrape and in OpenTelemetry, with the trace of a slow request
// as an exemplar in both.
func TestProducerHasTheNumbersOfAScrape(t *testing.T) {
	t.Parallel()
	tr := newTraced()
	m := telemetry.New(&telemetry.Options{TraceID: otel.TraceID})
	m.Routes(operation)
	e := newEngine(t, memstore.New(nil), retrysafe.Options{Tracer: tr, Observer: m.Observer()})
	var first trace.SpanContext
	for i := range 3 {
		sc := tr.request(t.Context(), func(ctx context.Context) {
			do(t, ctx, e)
			m.ExchangeIn(ctx, operation, "fresh", 201, []time.Duration{3 * time.Millisecond, 2 * time.Second, time.Hour}[i])
		})
		if i == 0 {
			first = sc
		}
	}
	m.Exchange(operation, "replay", 201, time.Millisecond)
	all := collect(t, m)
	sum, ok := all["api_idempotency_reserve_replay_total"].Data.(metricdata.Sum[float64])
	if !ok || !sum.IsMonotonic || sum.Temporality != metricdata.CumulativeTemporality || sum.DataPoints[0].Value != 2 {
		t.Errorf("replays: %+v", all["api_idempotency_reserve_replay_total"])
	}
	if g, ok := all["retrysafe_build_info"].Data.(metricdata.Gauge[float64]); !ok || g.DataPoints[0].Value != 1 {
		t.Errorf("build info: %+v", all["retrysafe_build_info"])
	}
	h, ok := all["retrysafe_request_duration_seconds"].Data.(metricdata.Histogram[float64])
	if !ok || len(h.DataPoints) != 2 {
		t.Fatalf("durations: %+v", all["retrysafe_request_duration_seconds"])
	}
	for _, p := range h.DataPoints {
		outcome, _ := p.Attributes.Value("outcome")
		var total uint64
		for _, n := range p.BucketCounts {
			total += n
		}
		if total != p.Count || len(p.BucketCounts) != len(p.Bounds)+1 || math.IsInf(p.Bounds[len(p.Bounds)-1], 1) {
			t.Errorf("%s: %d in buckets, %d in all, %d bounds", outcome.AsString(), total, p.Count, len(p.Bounds))
		}
		if want := map[string]int{"fresh": 3, "replay": 0}[outcome.AsString()]; len(p.Exemplars) != want {
			t.Errorf("%s: %d exemplars, want %d", outcome.AsString(), len(p.Exemplars), want)
		}
		if outcome.AsString() == "fresh" && trace.TraceID(p.Exemplars[0].TraceID) != first.TraceID() {
			t.Errorf("the first exemplar is of %x, want %v", p.Exemplars[0].TraceID, first.TraceID())
		}
	}
	attempts, ok := all["retrysafe_attempt_duration_seconds"].Data.(metricdata.Histogram[float64])
	if !ok || len(attempts.DataPoints[0].Exemplars) != 1 || trace.TraceID(attempts.DataPoints[0].Exemplars[0].TraceID) != first.TraceID() {
		t.Errorf("attempts: %+v, want an exemplar of %v", attempts, first.TraceID())
	}
	scrape := scraped(t, m, "application/openmetrics-text; version=1.0.0")
	if want := `# {trace_id="` + first.TraceID().String() + `"}`; strings.Count(scrape, want) < 2 {
		t.Errorf("the scrape has not the exemplar %s on both histograms:\n%s", want, scrape)
	}
	if plain := scraped(t, m, "text/plain"); strings.Contains(plain, "trace_id") {
		t.Errorf("the text format has exemplars:\n%s", plain)
	}
}

func scraped(tb testing.TB, m *telemetry.Metrics, accept string) string {
	tb.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
