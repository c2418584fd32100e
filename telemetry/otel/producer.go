package otel

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// NewProducer returns a producer of the metrics that c collects, such as those of a
// [telemetry.Metrics]: the same numbers under the same names as a scrape has, read when an
// OpenTelemetry reader asks.
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(producer))
func NewProducer(c prometheus.Collector) (metric.Producer, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return nil, fmt.Errorf("otel: new producer: %w", err)
	}
	return &producer{gatherer: registry, began: time.Now()}, nil
}

type producer struct {
	gatherer prometheus.Gatherer
	began    time.Time // counters have counted since then, or a moment before
}

// Produce implements [metric.Producer].
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	families, err := p.gatherer.Gather() // with an error it returns what it could gather
	if err != nil {
		err = fmt.Errorf("otel: gather: %w", err)
	}
	now := time.Now()
	metrics := make([]metricdata.Metrics, 0, len(families))
	for _, f := range families {
		m := metricdata.Metrics{Name: f.GetName(), Description: f.GetHelp()}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			m.Data = metricdata.Sum[float64]{
				Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
				DataPoints: p.numbers(f, now, func(m *dto.Metric) float64 { return m.GetCounter().GetValue() }),
			}
		case dto.MetricType_GAUGE:
			m.Data = metricdata.Gauge[float64]{
				DataPoints: p.numbers(f, now, func(m *dto.Metric) float64 { return m.GetGauge().GetValue() }),
			}
		case dto.MetricType_HISTOGRAM:
			m.Unit = "s" // all histograms are durations
			m.Data = metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: p.histograms(f, now)}
		default:
			continue // package telemetry has no other types
		}
		metrics = append(metrics, m)
	}
	if len(metrics) == 0 {
		return nil, err
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scopeName}, Metrics: metrics}}, err
}

func (p *producer) numbers(f *dto.MetricFamily, now time.Time, value func(*dto.Metric) float64) []metricdata.DataPoint[float64] {
	points := make([]metricdata.DataPoint[float64], len(f.GetMetric()))
	for i, m := range f.GetMetric() {
		points[i] = metricdata.DataPoint[float64]{Attributes: attributesOf(m), StartTime: p.began, Time: now, Value: value(m)}
	}
	return points
}

func (p *producer) histograms(f *dto.MetricFamily, now time.Time) []metricdata.HistogramDataPoint[float64] {
	points := make([]metricdata.HistogramDataPoint[float64], len(f.GetMetric()))
	for i, m := range f.GetMetric() {
		h := m.GetHistogram()
		point := metricdata.HistogramDataPoint[float64]{
			Attributes: attributesOf(m), StartTime: p.began, Time: now, Count: h.GetSampleCount(), Sum: h.GetSampleSum(),
		}
		var before uint64
		for _, b := range h.GetBucket() { // Prometheus counts all below a bound, OpenTelemetry those of each bucket
			if e := b.GetExemplar(); e != nil {
				point.Exemplars = append(point.Exemplars, exemplarOf(e))
			}
			if math.IsInf(b.GetUpperBound(), 1) {
				continue // OpenTelemetry's last bucket has no bound
			}
			point.Bounds = append(point.Bounds, b.GetUpperBound())
			point.BucketCounts = append(point.BucketCounts, b.GetCumulativeCount()-before)
			before = b.GetCumulativeCount()
		}
		point.BucketCounts = append(point.BucketCounts, h.GetSampleCount()-before)
		points[i] = point
	}
	return points
}

func attributesOf(m *dto.Metric) attribute.Set {
	all := make([]attribute.KeyValue, len(m.GetLabel()))
	for i, l := range m.GetLabel() {
		all[i] = attribute.String(l.GetName(), l.GetValue())
	}
	return attribute.NewSet(all...)
}

func exemplarOf(e *dto.Exemplar) metricdata.Exemplar[float64] {
	x := metricdata.Exemplar[float64]{Value: e.GetValue(), Time: e.GetTimestamp().AsTime()}
	for _, l := range e.GetLabel() {
		if l.GetName() == "trace_id" {
			x.TraceID, _ = hex.DecodeString(l.GetValue()) // it is what TraceID has returned
		}
	}
	return x
}
