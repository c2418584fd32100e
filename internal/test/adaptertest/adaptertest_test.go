package adaptertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

// The guard on net/http is what the adapters are held to, so it passes their suite.
func TestNetHTTP(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, adaptertest.Adapter{Serve: serve, Pattern: "POST /accounts/{id}/charges", PlainErrors: true})
}

type tenantKey struct{}

// serve is the service on net/http.
func serve(t *testing.T, s *adaptertest.Service) string {
	t.Helper()
	if s.Options.Operation == nil {
		s.Options.Operation = func(r *http.Request) string { return r.Pattern }
	}
	g, err := httpkey.New(s.Engine, func(r *http.Request) (string, error) {
		tenant, _ := r.Context().Value(tenantKey{}).(string)
		return adaptertest.Tenant(tenant)
	}, s.Options)
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Deprecation", r.Header.Get("X-Outer"))
			g.Handler(next).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, r.Header.Get("X-Tenant"))))
		})
	}
	mux := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		if s.Everywhere {
			mux.Handle(pattern, h)
		} else {
			mux.Handle(pattern, wrap(h))
		}
	}
	charge := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a := s.Charge(r.Context(), r.PathValue("id"), body)
		for name, values := range a.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body)
	}
	handle("POST /accounts/{id}/charges", charge)
	handle("POST /accounts/{id}/refunds", charge)
	handle("GET /accounts/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PathValue("id")) })
	handle("POST /refused", func(w http.ResponseWriter, r *http.Request) {
		s.Ran(r.Context())
		http.Error(w, adaptertest.ErrRefused.Error(), http.StatusPaymentRequired)
	})
	handle("POST /broken", func(w http.ResponseWriter, r *http.Request) {
		s.Ran(r.Context())
		http.Error(w, "broken", http.StatusInternalServerError)
	})
	handle("POST /panic", func(_ http.ResponseWriter, r *http.Request) { s.Panic(r.Context()) })
	handle("POST /empty", func(w http.ResponseWriter, r *http.Request) {
		s.Ran(r.Context())
		w.WriteHeader(http.StatusNoContent)
	})
	handle("POST /stream", func(w http.ResponseWriter, r *http.Request) {
		s.Ran(r.Context())
		fmt.Fprint(w, "one ")
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, "two")
	})
	handle("POST /hijack", func(w http.ResponseWriter, r *http.Request) {
		s.Ran(r.Context())
		_, _, err := http.NewResponseController(w).Hijack()
		fmt.Fprint(w, err)
	})
	handle("POST /commit", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "committed")
		if err := s.InTx(r.Context(), func(tx retrysafe.Tx) error { return httpkey.CompleteTx(r.Context(), w, tx) }); err != nil {
			t.Error(err)
		}
	})
	var h http.Handler = mux
	if s.Everywhere {
		h = wrap(mux)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}
