package otel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/retrysafe/retrysafe/telemetry"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// Whether or not a provider records spans, the client gets the handler's answer, with its status.
func TestHandlerPassesTheAnswerOn(t *testing.T) {
	t.Parallel()
	for name, tr := range map[string]*otel.Tracer{"recording": newTraced().Tracer, "without spans": otel.New(noop.NewTracerProvider())} {
		for status, handler := range map[int]http.HandlerFunc{
			http.StatusConflict: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Own", "1")
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, "text")
			},
			http.StatusOK: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Own", "1")
				_, _ = io.WriteString(w, "text")
			},
		} {
			w := httptest.NewRecorder()
			tr.Handler(handler).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}")))
			if w.Code != status || w.Body.String() != "text" || w.Header().Get("X-Own") != "1" {
				t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, status)
			}
		}
	}
}

// The span has the first final status, as the client does, and that of a change of protocol.
func TestHandlerNotesTheFinalStatus(t *testing.T) {
	t.Parallel()
	for want, statuses := range map[string][]int{"101": {101}, "200": {103, 200, 500}, "409": {409, 201}} {
		tr := newTraced()
		tr.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, status := range statuses {
				w.WriteHeader(status)
			}
		})).ServeHTTP(discard{http.Header{}}, httptest.NewRequest(http.MethodPost, "/", nil))
		has(t, tr.Ended()[0], map[string]string{"http.response.status_code": want})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// Nothing of a metric is lost on the way to OpenTelemetry: its help, its labels, its sums, and since when it counts.
func TestProducerCopiesWholeMetrics(t *testing.T) {
	t.Parallel()
	before := time.Now()
	m := telemetry.New(nil)
	m.Routes(operation)
	m.Exchange(operation, "replay", 201, 1500*time.Millisecond)
	m.Exchange(operation, "replay", 201, 500*time.Millisecond)
	all := collect(t, m)
	for name, one := range all {
		if one.Description == "" {
			t.Errorf("%s has no description", name)
		}
	}
	now := time.Now()
	since := func(name string, start, at time.Time) {
		if start.Before(before) || at.Before(start) || at.After(now) {
			t.Errorf("%s counts from %v to %v; the test ran from %v to %v", name, start, at, before, now)
		}
	}
	labelled := 0
	for name, one := range all {
		switch data := one.Data.(type) {
		case metricdata.Sum[float64]:
			for _, p := range data.DataPoints {
				since(name, p.StartTime, p.Time)
				labelled += p.Attributes.Len()
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				since(name, p.StartTime, p.Time)
				labelled += p.Attributes.Len()
			}
		case metricdata.Histogram[float64]:
			if data.Temporality != metricdata.CumulativeTemporality || one.Unit != "s" {
				t.Errorf("%s has the unit %q and the temporality %v", name, one.Unit, data.Temporality)
			}
			for _, p := range data.DataPoints {
				since(name, p.StartTime, p.Time)
			}
		}
	}
	if labelled == 0 {
		t.Error("no number has a label")
	}
	durations, _ := all["retrysafe_request_duration_seconds"].Data.(metricdata.Histogram[float64])
	for _, p := range durations.DataPoints {
		if outcome, _ := p.Attributes.Value(attribute.Key("outcome")); outcome.AsString() == "replay" && (p.Count != 2 || p.Sum != 2) {
			t.Errorf("two replays took %v s in %d", p.Sum, p.Count)
		}
	}
}

// A collector that cannot be registered is an error, and not a producer of nothing.
func TestProducerOfABadCollector(t *testing.T) {
	t.Parallel()
	bad := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: ""}, func() float64 { return 1 })
	if p, err := otel.NewProducer(bad); err == nil || p != nil {
		t.Errorf("NewProducer = %v, %v", p, err)
	}
}
