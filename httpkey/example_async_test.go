package httpkey_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

type userKey struct{}

// Async mode: requests are stored, a worker runs them, and clients look for the
// answer, by the same request again or at the place they were told.
func ExampleWorker() {
	engine, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun},
	})
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, &httpkey.Options{
		Async:     true,
		StatusURL: func(_ *http.Request, key string) string { return "/exports/status/" + url.PathEscape(key) },
		Restore: func(ctx context.Context, _ *http.Request, ref retrysafe.Ref) (context.Context, error) {
			tenant, _ := httpkey.Caller(ref)
			return context.WithValue(ctx, userKey{}, tenant), nil
		},
	})
	if err != nil {
		panic(err)
	}
	exports := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "all orders of %s", r.Context().Value(userKey{}))
	}))
	mux := http.NewServeMux()
	mux.Handle("POST /exports", exports)
	mux.Handle("GET /exports/status/{key}", guard.Status("POST /exports"))
	worker, err := httpkey.NewWorker(guard, map[string]http.Handler{"POST /exports": exports}, nil)
	if err != nil {
		panic(err)
	}

	send := func(method, target string) string {
		r := httptest.NewRequest(method, target, strings.NewReader(`{"format":"csv"}`))
		r.SetBasicAuth("acme", "secret")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code == http.StatusAccepted {
			fmt.Println(w.Code, "later")
		} else {
			fmt.Println(w.Code, w.Body)
		}
		return w.Header().Get("Location")
	}
	place := send(http.MethodPost, "/exports")
	send(http.MethodGet, place)
	n, err := worker.RunOnce(context.Background()) // a server has go worker.Run(ctx)
	fmt.Println("worker:", n, err)
	send(http.MethodGet, place)
	send(http.MethodPost, "/exports")
	// Output:
	// 202 later
	// 202 later
	// worker: 1 <nil>
	// 201 all orders of acme
	// 201 all orders of acme
}
