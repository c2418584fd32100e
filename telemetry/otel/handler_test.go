package otel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
)

const clients = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A request is served in a span that continues its client's trace, and what is sent on from
// there names that span.
func TestHandlerContinuesTheClientsTrace(t *testing.T) {
	t.Parallel()
	tr := newTraced()
	sent := map[string]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments/{id}", func(w http.ResponseWriter, r *http.Request) {
		tr.Inject(r.Context(), sent)
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "no")
	})
	r := httptest.NewRequest(http.MethodPost, "/payments/"+card+"?token="+token, strings.NewReader(card))
	r.Header.Set("Traceparent", clients)
	r.Header.Set("Tracestate", "vendor=1")
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Retry-Count", "2")
	tr.Handler(mux).ServeHTTP(httptest.NewRecorder(), r)
	span := tr.Ended()[0]
	if span.Name() != "POST /payments/{id}" || span.Parent().SpanID().String() != clients[36:52] || span.SpanContext().TraceID().String() != clients[3:35] {
		t.Errorf("the span is %q of %v, parent %v", span.Name(), span.SpanContext(), span.Parent())
	}
	has(t, span, map[string]string{
		"http.request.method": "POST", "http.route": "/payments/{id}", "http.response.status_code": "409", "http.request.resend_count": "2",
	})
	if want := clients[:36] + span.SpanContext().SpanID().String() + "-01"; sent["traceparent"] != want || sent["tracestate"] != "vendor=1" {
		t.Errorf("sent on: %v, want %s", sent, want)
	}
	noSecrets(t, tr)
}

// The headers by which clients count their retries.
func TestResendCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, value, want string }{
		{"X-Retry-Count", "1", "1"},
		{"X-Retry-Count", "0", ""},
		{"X-Retry-Count", "-1", ""},
		{"X-Retry-Count", token, ""},
		{"X-Retry-Count", "99999999999999999999", ""},
		{"X-Retry-Count", "1000001", ""},
		{"X-Stainless-Retry-Count", "3", "3"},
		{"Grpc-Previous-Rpc-Attempts", "2", "2"},
		{"X-Envoy-Attempt-Count", "1", ""},
		{"X-Envoy-Attempt-Count", "4", "3"},
	} {
		tr := newTraced()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(c.header, c.value)
		tr.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
		has(t, tr.Ended()[0], map[string]string{"http.request.resend_count": c.want, "http.response.status_code": "200"})
	}
}

// An answer that was cut off and an error of the service are errors; a refusal is none.
func TestHandlerStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  string
		code    codes.Code
	}{
		"5xx":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "502", codes.Error},
		"refused":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }, "409", codes.Unset},
		"cut off":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", codes.Error},
		"informed": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(201) }, "201", codes.Unset},
		"flushed": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}, "200", codes.Unset},
	} {
		tr := newTraced()
		func() {
			defer func() { _ = recover() }()
			tr.Handler(c.handler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/", nil))
		}()
		span := tr.Ended()[0]
		has(t, span, map[string]string{"http.response.status_code": c.status, "http.request.method": "_OTHER"})
		if span.Status().Code != c.code {
			t.Errorf("%s: status %v", name, span.Status())
		}
	}
}
