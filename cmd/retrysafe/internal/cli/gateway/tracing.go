package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// Spans wait in memory for their export. While the collector does not answer, those beyond
// maxSpans are dropped: a request never waits for one.
const (
	maxSpans    = 8192
	exportBatch = 512
	exportEvery = time.Second
	// flushWithin bounds how long a gateway that ends waits for the collector, besides the
	// end of its drain.
	flushWithin = 5 * time.Second
)

// An exporter sends the spans of one configuration to its collector. A nil exporter makes
// and sends none.
type exporter struct {
	provider *trace.TracerProvider
	logger   *slog.Logger
}

// newExporter returns an exporter for a configuration, or nil if that has no endpoint. It
// connects when there is something to send.
func newExporter(ctx context.Context, c *config.Tracing, logger *slog.Logger) (*exporter, error) {
	if c.Endpoint == "" {
		return nil, nil //nolint:nilnil // a nil exporter exports nothing
	}
	tellErrors(logger)
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.URL()), otlptracehttp.WithHeaders(c.Header()), otlptracehttp.WithTimeout(c.Timeout))
	if err != nil {
		return nil, exit.Usagef("tracing: %v", err)
	}
	return &exporter{logger: logger, provider: trace.NewTracerProvider(
		trace.WithResource(resourceOf(c)),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(c.Sample))),
		trace.WithBatcher(client, trace.WithMaxQueueSize(maxSpans), trace.WithMaxExportBatchSize(exportBatch),
			trace.WithBatchTimeout(exportEvery), trace.WithExportTimeout(c.Timeout)),
	)}, nil
}

// resourceOf returns what spans and metrics say about this process.
func resourceOf(c *config.Tracing) *resource.Resource {
	return resource.NewSchemaless(
		attribute.String("service.name", c.Service), attribute.String("service.version", build.Current().Version),
		attribute.String("service.instance.id", instanceID()),
	)
}

// instanceID is the name of this process, the same after a reload.
var instanceID = sync.OnceValue(func() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
})

// tracer returns what makes the spans, or nil.
func (e *exporter) tracer() *otel.Tracer {
	if e == nil {
		return nil
	}
	return otel.New(e.provider)
}

// flush sends the spans that have ended, and ends the exporter. Spans that the collector
// does not take in time are lost; that is no failure of the gateway's.
func (e *exporter) flush(ctx context.Context) {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		e.logger.Warn("retrysafe: the last spans were not sent", "error", err)
	}
}

// traceOf returns the id of a sampled trace, for the access log.
func traceOf(ctx context.Context) string {
	if ctx == nil {
		return ""
	}
	return otel.TraceID(ctx)
}

// errorPause is how long failures to export are not logged after one was.
const errorPause = time.Minute

// tellErrors has failures to export logged, at most one in errorPause: while a collector is
// down there is one each second.
func tellErrors(logger *slog.Logger) {
	var last atomic.Int64 // the time of the last line
	global.SetErrorHandler(global.ErrorHandlerFunc(func(err error) {
		now, before := time.Now().UnixNano(), last.Load()
		if before != 0 && now-before < int64(errorPause) || !last.CompareAndSwap(before, now) {
			return
		}
		logger.Warn("retrysafe: spans were not sent to the collector, or metrics, and are lost; requests are not affected", "error", err)
	}))
}
