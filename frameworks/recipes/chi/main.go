// A service on chi whose charges are safe to retry.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func main() {
	engine, err := retrysafe.New(memstore.New(nil), nil) // sqlitestore and pgstore outlive the process
	if err != nil {
		log.Fatal(err)
	}
	app, err := routes(engine)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", app))
}

func routes(engine *retrysafe.Engine) (http.Handler, error) {
	guard, err := httpkey.New(engine, tenant, &httpkey.Options{Operation: operation})
	if err != nil {
		return nil, err
	}
	app := chi.NewRouter()
	app.Use(auth)
	app.Route("/accounts/{id}", func(account chi.Router) {
		account.With(guard.Handler).Post("/charges", charge) // With, and not Use
	})
	return app, nil
}

// operation returns the whole pattern. In Use chi does not know it yet, and the guard
// refuses an empty name.
func operation(r *http.Request) string {
	pattern := chi.RouteContext(r.Context()).RoutePattern()
	if pattern == "" || strings.HasSuffix(pattern, "*") {
		return ""
	}
	return r.Method + " " + pattern
}

type tenantKey struct{}

// auth stands for your authentication.
func auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
	})
}

func tenant(r *http.Request) (string, error) { return r.Context().Value(tenantKey{}).(string), nil }

func charge(w http.ResponseWriter, r *http.Request) {
	var in struct{ Amount int }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Amount <= 0 {
		http.Error(w, "amount is not positive", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "charged %d to %s: pay_%s\n", in.Amount, chi.URLParam(r, "id"), rand.Text())
}
