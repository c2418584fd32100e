package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/webhook"
)

// What is told of a request that has ended has the request's own context, whatever became of
// it: the access log, the metrics and the span find its trace there.
func TestEveryExchangeIsToldWithItsRequest(t *testing.T) {
	t.Parallel()
	b := build(t, hooked(), func(b *bundle) {
		b.config.Routes = append(b.config.Routes, route("POST /files/{name}"), route("POST /jobs", func(s *config.Settings) { s.Async = true }),
			route("POST /watched", func(s *config.Settings) { s.Observe, s.Required = true, false }), route("POST /off", turnedOff),
			route("POST /optional", func(s *config.Settings) { s.Required = false }))
	})
	const body = `{"id":"e1","type":"customer.created"}`
	keyed := with("Idempotency-Key", key)
	signed := func(r *http.Request) {
		r.Header.Set("Stripe-Signature", webhook.SignStripe(hookSecret, time.Now(), []byte(body)))
	}
	type name struct{}
	for i, c := range []struct {
		method, target string
		change         []func(*http.Request)
		route          string
		handling       gateway.Handling
		code           string
		status         int
	}{
		{"GET", "/things", nil, "", gateway.HandlingPassed, "", 201},
		{"POST", "/off", nil, "POST /off", gateway.HandlingPassed, "", 201},
		{"POST", "/optional", nil, "POST /optional", gateway.HandlingPassed, "", 201},
		{"POST", "/watched", []func(*http.Request){with("Idempotency-Key", "7c1e0b52-5b0e-4a2f-9d3c-1f6a8e2b4c70")}, "POST /watched", gateway.HandlingObserved, "", 201},
		{"POST", "/payments", []func(*http.Request){keyed}, "POST /payments", gateway.HandlingFresh, "", 201},
		{"POST", "/payments", []func(*http.Request){keyed}, "POST /payments", gateway.HandlingReplayed, "", 201},
		{"POST", "/payments", nil, "POST /payments", gateway.HandlingRefused, "key-missing", 400},
		{"POST", "/elsewhere", nil, gateway.DefaultRoute, gateway.HandlingRefused, "key-missing", 400},
		{"POST", "/jobs", []func(*http.Request){with("Idempotency-Key", other)}, "POST /jobs", gateway.HandlingAccepted, "in-flight", 202},
		{"POST", "/files/a%2Fb", []func(*http.Request){keyed}, "POST /files/{name}", gateway.HandlingRefused, "path-ambiguous", 400},
		{"GET", "/things", []func(*http.Request){with("Connection", "Authorization")}, "", gateway.HandlingRefused, "connection-removes-header", 400},
		{"POST", "/hooks/pay", []func(*http.Request){signed}, "webhook pay", gateway.HandlingEvent, "", 200},
		{"POST", "/hooks/pay", nil, "webhook pay", gateway.HandlingRefused, "", 400},
	} {
		ctx := context.WithValue(t.Context(), name{}, i)
		r := b.request(t, c.method, "http://gateway.example"+c.target, body, c.change...).WithContext(ctx)
		r.RemoteAddr, r.RequestURI = "127.0.0.1:1", c.target
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		x := b.last(t)
		if x.Context == nil || x.Context.Value(name{}) != i {
			t.Errorf("%s %s, %s: it is told without the request's context", c.method, c.target, x.Handling)
		}
		if x.Route != c.route || x.Handling != c.handling || x.Code != c.code || x.Status != c.status || w.Code != c.status {
			t.Errorf("%s %s: answered %d, told of %+v, want %+v", c.method, c.target, w.Code, x, c)
		}
		if x.Method != c.method || x.Path != c.target || x.Took <= 0 || x.Later {
			t.Errorf("%s %s: told of %+v", c.method, c.target, x)
		}
		if want := int64(w.Body.Len()); x.Bytes != want && x.Bytes != -1 {
			t.Errorf("%s %s: %d bytes are told of, want %d", c.method, c.target, x.Bytes, want)
		}
	}
}
