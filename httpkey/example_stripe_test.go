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

// Stripe's profile: opaque keys, 400 for a key that is used twice, server errors
// are answers too, and refusals in the form that Stripe's libraries understand.
func ExampleNew_stripe() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, &httpkey.Options{Profile: httpkey.Stripe})
	if err != nil {
		panic(err)
	}
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the bank does not answer", http.StatusInternalServerError)
	}))
	examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)
	examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)

	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":9900}`))
	r.SetBasicAuth("acme", "secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	kind, _, _ := strings.Cut(strings.TrimPrefix(w.Body.String(), `{"error":{"type":"`), `"`)
	fmt.Println(w.Code, kind, "retry:", w.Header().Get("Stripe-Should-Retry"))
	// Output:
	// 500 the bank does not answer
	// 500 the bank does not answer (replayed)
	// 400 idempotency_error retry: false
}
