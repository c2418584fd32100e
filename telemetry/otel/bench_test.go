package otel_test

import (
	"strconv"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// BenchmarkDo measures an attempt with its settlement: without tracing, with spans that are
// not sampled, and with spans that are recorded and handed to an exporter.
func BenchmarkDo(b *testing.B) {
	for name, tracer := range map[string]retrysafe.Tracer{
		"off":       nil,
		"unsampled": otel.New(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))),
		"sampled":   otel.New(sdk.NewTracerProvider(sdk.WithBatcher(tracetest.NewNoopExporter(), sdk.WithMaxQueueSize(1<<16)))),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			const batch = 1 << 14
			e, c := newEngine(b, memstore.New(nil), retrysafe.Options{Tracer: tracer}), call
			for i := 0; b.Loop(); i++ {
				if i%batch == batch-1 {
					b.StopTimer()
					e = newEngine(b, memstore.New(nil), retrysafe.Options{Tracer: tracer})
					b.StartTimer()
				}
				c.Key = strconv.Itoa(i)
				if _, err := e.Do(b.Context(), c, paid); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
