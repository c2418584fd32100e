package gateway

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// tracing makes spans of requests. The zero value makes none.
type tracing struct {
	tracer  *otel.Tracer // nil if there is none
	handler http.Handler // serves a request in a span
}

func newTracing(t *otel.Tracer, serve http.HandlerFunc) (made tracing) {
	if t != nil {
		made = tracing{t, t.Handler(serve)}
	}
	return made
}

// serves serves a request in a span and reports true, or reports false if it is not to
// have one. The gateway's own endpoints have none: most such requests are probes.
func (t *tracing) serves(w http.ResponseWriter, r *http.Request) bool {
	if t.tracer == nil || strings.HasPrefix(r.URL.Path, ownPrefix) {
		return false
	}
	t.handler.ServeHTTP(w, r)
	return true
}

// engine returns the tracer for engines and duties: a nil interface if there is none.
func (t *tracing) engine() retrysafe.Tracer {
	if t.tracer == nil {
		return nil
	}
	return t.tracer
}

// inject names the gateway's span as the parent of what the upstream does. Without tracing
// the headers of the client's trace pass as they came.
func (t *tracing) inject(out *http.Request) {
	if t.tracer == nil || !trace.SpanContextFromContext(out.Context()).IsValid() {
		return
	}
	delete(out.Header, "Tracestate")
	propagation.TraceContext{}.Inject(out.Context(), propagation.HeaderCarrier(out.Header))
}

// told adds what became of a request to its span, and passes it on.
func (t *tracing) told(next func(Exchange)) func(Exchange) {
	if t.tracer == nil {
		return next
	}
	return func(x Exchange) {
		if x.Context != nil && !x.Later { // a worker's attempt has no request, and its span has ended
			span := trace.SpanFromContext(x.Context)
			span.SetAttributes(attribute.String("retrysafe.outcome", string(x.Handling)))
			if x.Code != "" {
				span.SetAttributes(attribute.String("retrysafe.problem", x.Code))
			}
		}
		if next != nil {
			next(x)
		}
	}
}
