package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A service that knows nothing of keys, and a gateway before it.
func Example() {
	payments := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments)
	}))
	defer service.Close()

	g, err := gateway.New(&config.Config{
		Upstream: service.URL,
		Tenant:   config.Tenant{From: "none"},
		Defaults: config.Settings{Required: true},
	}, gateway.Parts{Store: memstore.New(nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Drain(context.Background()) }()
	front := httptest.NewServer(g)
	defer front.Close()

	for range 2 {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, front.URL+"/payments", strings.NewReader(`{"amount": 1200}`))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		res, err := front.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		fmt.Println(res.StatusCode, string(body), "replayed:", res.Header.Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 payment 1 replayed: false
	// 201 payment 1 replayed: true
}
