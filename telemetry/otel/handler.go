package otel

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler returns a handler that serves each request in a span of its own, which continues
// the trace that the request's headers name. Put it before the guard. A program that uses
// otelhttp needs no Handler; it lacks http.request.resend_count then.
//
// The span has method, route, status and, if the client says so, how often the request was
// sent before. It has no path, since a path may hold what must not be in a trace.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := t.w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		method := methodOf(r.Method)
		ctx, span := t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
		if !span.IsRecording() {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		span.SetAttributes(attribute.String("http.request.method", method))
		if n := resends(r.Header); n > 0 {
			span.SetAttributes(attribute.Int("http.request.resend_count", n))
		}
		served, noted := r.WithContext(ctx), &statusWriter{ResponseWriter: w}
		defer func() { // also when the handler panics because its answer was cut off
			if route := served.Pattern[strings.IndexByte(served.Pattern, ' ')+1:]; route != "" {
				span.SetName(method + " " + route)
				span.SetAttributes(attribute.String("http.route", route))
			}
			if noted.status > 0 {
				span.SetAttributes(attribute.Int("http.response.status_code", noted.status))
			}
			if noted.status >= http.StatusInternalServerError || noted.status == 0 {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next.ServeHTTP(noted, served)
		if noted.status == 0 { // net/http sends it when the handler has returned
			noted.status = http.StatusOK
		}
	})
}

// methodOf returns the method as the attribute has it: clients may send any text.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	default:
		return "_OTHER"
	}
}

// resendHeaders are headers by which clients and proxies say how often a request was sent
// before, and what the first request has there.
var resendHeaders = [...]struct {
	name  string
	first int
}{
	{"X-Retry-Count", 0},
	{"X-Stainless-Retry-Count", 0},
	{"Grpc-Previous-Rpc-Attempts", 0},
	{"X-Envoy-Attempt-Count", 1},
}

// maxResends is the largest number that is taken for a count.
const maxResends = 1_000_000

// resends returns how often the client says that it has sent the request before, or zero.
func resends(h http.Header) int {
	for _, header := range resendHeaders {
		values := h[header.name]
		if len(values) != 1 {
			continue
		}
		n, err := strconv.Atoi(values[0])
		if n -= header.first; err == nil && n >= 0 && n <= maxResends {
			return n
		}
	}
	return 0
}

// A statusWriter notes the final status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
