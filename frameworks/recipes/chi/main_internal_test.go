package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestProgram(t *testing.T) {
	t.Parallel()
	adaptertest.Program(t, "POST /accounts/{id}/charges", func(t *testing.T, e *retrysafe.Engine) string {
		t.Helper()
		app, err := routes(e)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(app)
		t.Cleanup(server.Close)
		return server.URL
	})
}

// In Use, of the router itself or of one below it, the pattern is not known yet.
func TestUseIsRefused(t *testing.T) {
	t.Parallel()
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil },
		&httpkey.Options{Operation: operation, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	below := chi.NewRouter()
	below.Route("/accounts/{id}", func(r chi.Router) {
		r.Use(guard.Handler)
		r.Post("/charges", charge)
	})
	above := chi.NewRouter()
	above.Use(guard.Handler)
	above.Post("/accounts/{id}/charges", charge)
	for name, app := range map[string]http.Handler{"below": below, "above": above} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/accounts/7/charges", strings.NewReader(`{"amount":1}`))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "route-unknown") {
			t.Errorf("%s: got %d %s, want 500 route-unknown", name, w.Code, w.Body)
		}
	}
}
