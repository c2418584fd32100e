package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
	about "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// A pusher sends the metrics of this process to the collector of a configuration, the same
// numbers that a scrape has. A nil pusher sends none.
type pusher struct {
	provider *metric.MeterProvider
	logger   *slog.Logger
}

// newPusher returns a pusher for a configuration, or nil if that sends no metrics.
func newPusher(c *config.Tracing, metrics prometheus.Collector, logger *slog.Logger) (*pusher, error) {
	if c.Endpoint == "" || c.MetricsEvery == 0 {
		return nil, nil //nolint:nilnil // a nil pusher sends nothing
	}
	tellErrors(logger)
	producer, err := otel.NewProducer(metrics)
	if err != nil {
		return nil, exit.Usagef("tracing: %v", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	to := &metricExporter{
		url: c.MetricsURL(), header: c.Header(), idle: transport.CloseIdleConnections,
		client: &http.Client{
			Transport:     neverresend.Transport(transport),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirect would send the headers elsewhere
		},
	}
	return &pusher{logger: logger, provider: metric.NewMeterProvider(metric.WithResource(resourceOf(c)), metric.WithReader(
		metric.NewPeriodicReader(to, metric.WithInterval(c.MetricsEvery), metric.WithTimeout(c.Timeout), metric.WithProducer(producer)),
	))}, nil
}

// flush sends the metrics once more, and ends the pusher.
func (p *pusher) flush(ctx context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	if err := p.provider.Shutdown(ctx); err != nil {
		p.logger.Warn("retrysafe: the last metrics were not sent", "error", err)
	}
}

// A metricExporter sends metrics by OTLP over HTTP.
type metricExporter struct {
	url    string
	header map[string]string
	client *http.Client
	idle   func() // closes idle connections
}

var _ metric.Exporter = (*metricExporter)(nil)

// Temporality implements [metric.Exporter].
func (e *metricExporter) Temporality(k metric.InstrumentKind) metricdata.Temporality {
	return metric.DefaultTemporalitySelector(k)
}

// Aggregation implements [metric.Exporter].
func (e *metricExporter) Aggregation(k metric.InstrumentKind) metric.Aggregation {
	return metric.DefaultAggregationSelector(k)
}

// ForceFlush implements [metric.Exporter]. Nothing is kept back.
func (e *metricExporter) ForceFlush(context.Context) error { return nil }

// Shutdown implements [metric.Exporter].
func (e *metricExporter) Shutdown(context.Context) error {
	e.idle()
	return nil
}

// Export implements [metric.Exporter].
func (e *metricExporter) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	// MetricsData has the bytes of a request to a collector.
	body, err := proto.Marshal(&otlp.MetricsData{ResourceMetrics: []*otlp.ResourceMetrics{resourceMetrics(all)}})
	if err != nil {
		return fmt.Errorf("send metrics: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send metrics: %w", err)
	}
	for name, value := range e.header {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	res, err := e.client.Do(r)
	if err != nil {
		return fmt.Errorf("send metrics: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("send metrics: the collector answers with status %d", res.StatusCode)
	}
	return nil
}

func resourceMetrics(all *metricdata.ResourceMetrics) *otlp.ResourceMetrics {
	out := &otlp.ResourceMetrics{Resource: &about.Resource{Attributes: attributes(all.Resource.Attributes())}}
	for i := range all.ScopeMetrics {
		from := &all.ScopeMetrics[i]
		scope := &otlp.ScopeMetrics{Scope: &common.InstrumentationScope{Name: from.Scope.Name}}
		for j := range from.Metrics {
			if m := metricOf(&from.Metrics[j]); m != nil {
				scope.Metrics = append(scope.Metrics, m)
			}
		}
		out.ScopeMetrics = append(out.ScopeMetrics, scope)
	}
	return out
}

// metricOf returns one metric, or nil if it is of a type that [otel.NewProducer] has not.
func metricOf(m *metricdata.Metrics) *otlp.Metric {
	out := &otlp.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit}
	switch data := m.Data.(type) {
	case metricdata.Sum[float64]:
		out.Data = &otlp.Metric_Sum{Sum: &otlp.Sum{
			AggregationTemporality: otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, IsMonotonic: data.IsMonotonic, DataPoints: numbers(data.DataPoints),
		}}
	case metricdata.Gauge[float64]:
		out.Data = &otlp.Metric_Gauge{Gauge: &otlp.Gauge{DataPoints: numbers(data.DataPoints)}}
	case metricdata.Histogram[float64]:
		out.Data = &otlp.Metric_Histogram{Histogram: &otlp.Histogram{
			AggregationTemporality: otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, DataPoints: histograms(data.DataPoints),
		}}
	default:
		return nil
	}
	return out
}

func numbers(points []metricdata.DataPoint[float64]) []*otlp.NumberDataPoint {
	out := make([]*otlp.NumberDataPoint, len(points))
	for i := range points {
		p := &points[i]
		out[i] = &otlp.NumberDataPoint{
			Attributes: attributes(p.Attributes.ToSlice()), StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
			Value: &otlp.NumberDataPoint_AsDouble{AsDouble: p.Value},
		}
	}
	return out
}

func histograms(points []metricdata.HistogramDataPoint[float64]) []*otlp.HistogramDataPoint {
	out := make([]*otlp.HistogramDataPoint, len(points))
	for i := range points {
		p := &points[i]
		out[i] = &otlp.HistogramDataPoint{
			Attributes: attributes(p.Attributes.ToSlice()), StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
			Count: p.Count, Sum: &p.Sum, BucketCounts: p.BucketCounts, ExplicitBounds: p.Bounds,
		}
		for j := range p.Exemplars {
			x := &p.Exemplars[j]
			out[i].Exemplars = append(out[i].Exemplars, &otlp.Exemplar{
				TimeUnixNano: nanos(x.Time), Value: &otlp.Exemplar_AsDouble{AsDouble: x.Value}, TraceId: x.TraceID, SpanId: x.SpanID,
			})
		}
	}
	return out
}

func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

func attributes(all []attribute.KeyValue) []*common.KeyValue {
	out := make([]*common.KeyValue, len(all))
	for i, a := range all {
		out[i] = &common.KeyValue{Key: string(a.Key), Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: a.Value.AsString()}}}
	}
	return out
}
