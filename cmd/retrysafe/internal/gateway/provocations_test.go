package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// gatewayProvocations has one for each problem that only a gateway has.
var gatewayProvocations = map[string]*provocation{
	"upstream-unreachable": {act: func(w *provoked) *httptest.ResponseRecorder {
		return through(w, &config.Config{Upstream: "http://" + porthold.New(w.t).Addr()}, docsKey)
	}},
	"upstream-busy": {act: func(w *provoked) *httptest.ResponseRecorder {
		return overtaking(w, &config.Config{Defaults: config.Settings{Concurrency: 1}})
	}},
	"gateway-busy": {act: func(w *provoked) *httptest.ResponseRecorder {
		return overtaking(w, &config.Config{Server: config.Server{MaxMemory: 40 << 10}})
	}},
	"body-too-slow": {act: func(w *provoked) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "/payments", iotest.ErrReader(os.ErrDeadlineExceeded)) // as the listener has it
		r.Header.Set("Idempotency-Key", docsKey)
		rec := httptest.NewRecorder()
		gatewayOf(w, &config.Config{Upstream: "http://" + porthold.New(w.t).Addr()}).ServeHTTP(rec, r)
		return rec
	}},
	"too-many-in-flight": {act: func(w *provoked) *httptest.ResponseRecorder {
		return overtaking(w, &config.Config{Limits: config.Limits{InFlight: 1}})
	}},
	"path-ambiguous": {act: func(w *provoked) *httptest.ResponseRecorder {
		g := gatewayOf(w, &config.Config{Upstream: "http://" + porthold.New(w.t).Addr(), Routes: []config.Route{{Match: "POST /payments"}}})
		rec := httptest.NewRecorder()
		g.ServeHTTP(rec, good(w.t, http.MethodPost, "/payments;v=2", strings.NewReader("{}")))
		return rec
	}},
	"connection-removes-header": {act: func(w *provoked) *httptest.ResponseRecorder {
		r := good(w.t, http.MethodPost, "/payments", strings.NewReader(`{"amount": 1200}`))
		r.Header.Set("Connection", "Authorization")
		rec := httptest.NewRecorder()
		gatewayOf(w, &config.Config{Upstream: "http://127.0.0.1:9000"}).ServeHTTP(rec, r)
		return rec
	}},
	"upstream-failed": {act: func(w *provoked) *httptest.ResponseRecorder {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		w.t.Cleanup(server.Close)
		return through(w, &config.Config{Upstream: server.URL, Defaults: config.Settings{Off: true}}, docsKey)
	}},
}

// through sends a request through a gateway.
func through(w *provoked, c *config.Config, key string) *httptest.ResponseRecorder {
	w.t.Helper()
	return sendTo(w.t, gatewayOf(w, c), key)
}

// overtaking sends a request, and another while the upstream has the first, and returns
// what the other gets.
func overtaking(w *provoked, c *config.Config) *httptest.ResponseRecorder {
	w.t.Helper()
	var g *gateway.Gateway
	var second *httptest.ResponseRecorder
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		second = sendTo(w.t, g, "3a5a1c1c-9d7e-4f0e-8a53-57a2e7a5f0b1")
	}))
	w.t.Cleanup(server.Close)
	c.Upstream = server.URL
	g = gatewayOf(w, c)
	sendTo(w.t, g, docsKey)
	return second
}

func gatewayOf(w *provoked, c *config.Config) *gateway.Gateway {
	w.t.Helper()
	c.Tenant.From = "none"
	g, err := gateway.New(c, gateway.Parts{Store: w.mem, Logger: slog.New(slog.DiscardHandler)})
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, g.Drain(context.WithoutCancel(w.t.Context()))) })
	return g
}

func sendTo(t *testing.T, h http.Handler, key string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(`{"amount": 1200}`))
	r.Header.Set("Idempotency-Key", key)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}
