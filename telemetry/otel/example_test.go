package otel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/telemetry"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// An engine whose calls and attempts are spans. A program exports them with
// otlptracehttp; this one keeps them.
func Example() {
	kept := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	engine, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{Tracer: otel.New(provider)})
	if err != nil {
		panic(err)
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "8e03978e-40d5-43dd-bc93"}, Operation: "POST /payments"}
	for range 2 {
		_, err := engine.Do(context.Background(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201}, nil
		})
		if err != nil {
			panic(err)
		}
	}
	spans := kept.GetSpans()
	for _, s := range spans {
		fmt.Println(s.Name)
	}
	fmt.Println("the replay links to the reservation:", spans[3].Links[0].SpanContext.SpanID() == spans[0].SpanContext.SpanID())
	// Output:
	// retrysafe reserve
	// retrysafe run
	// retrysafe settle
	// retrysafe replay
	// the replay links to the reservation: true
}

// Metrics with exemplars, for a scrape and for OpenTelemetry at the same time.
func ExampleNewProducer() {
	metrics := telemetry.New(&telemetry.Options{TraceID: otel.TraceID})
	producer, err := otel.NewProducer(metrics) // for metric.NewPeriodicReader
	if err != nil {
		panic(err)
	}
	got, err := producer.Produce(context.Background())
	fmt.Println(len(got), got[0].Scope.Name, err)
	// Output:
	// 1 github.com/retrysafe/retrysafe/telemetry/otel <nil>
}
