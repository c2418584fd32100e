package httpkey_test

import (
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A guard is middleware like any other. It stands behind authentication, so
// that a replay is authorised as every request is, and before the handler.
func ExampleGuard_Handler_chain() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, nil)
	if err != nil {
		panic(err)
	}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	// chain is what chi's Use and With do.
	chain := func(h http.Handler, middleware ...func(http.Handler) http.Handler) http.Handler {
		for i := len(middleware) - 1; i >= 0; i-- {
			h = middleware[i](h)
		}
		return h
	}
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") })
	h := chain(pay, authenticate, guard.Handler)

	examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)
	examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)
	// Output:
	// 200 paid
	// 200 paid (replayed)
}

// A test that fails when a route without a guard is added.
func ExampleAudit() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, nil)
	if err != nil {
		panic(err)
	}
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	routes := []httpkey.Route{
		{Method: "POST", Pattern: "/payments", Handler: h, Middleware: []func(http.Handler) http.Handler{guard.Handler}},
		{Method: "POST", Pattern: "/refunds", Handler: h},
		{Method: "GET", Pattern: "/payments", Handler: h},
	}
	for _, open := range httpkey.Audit(routes) {
		fmt.Printf("%s %s: %s\n", open.Method, open.Pattern, open.Why)
	}
	// Output:
	// POST /refunds: no guard on the way to its handler
}
