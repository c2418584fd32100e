package httpkey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// exampleTenant is whose keys they are: what authentication found out.
func exampleTenant(r *http.Request) (string, error) {
	user, _, _ := r.BasicAuth()
	return user, nil
}

// examplePost sends a payment as a client would and prints what comes back.
func examplePost(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.SetBasicAuth("acme", "secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	replayed := ""
	if w.Header().Get("Idempotent-Replayed") == "true" {
		replayed = " (replayed)"
	}
	fmt.Printf("%d %s%s\n", w.Code, strings.TrimSpace(w.Body.String()), replayed)
}

// A guard around a handler: the first request runs, each retry gets its answer
// byte for byte.
func Example() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, nil)
	if err != nil {
		panic(err)
	}
	payments := 0
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"payment":%d}`, payments)
	})))

	examplePost(mux, "8e03978e-40d5-43dd-bc93", `{"amount":1200,"currency":"EUR"}`)
	examplePost(mux, "8e03978e-40d5-43dd-bc93", `{"currency":"EUR", "amount":1200.00}`)
	examplePost(mux, "f2a0d6f4-9a51-4b7c-8f0e", `{"amount":1200,"currency":"EUR"}`)
	fmt.Println("payments:", payments)
	// Output:
	// 201 {"payment":1}
	// 201 {"payment":1} (replayed)
	// 201 {"payment":2}
	// payments: 2
}
