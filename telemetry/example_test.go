package telemetry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/telemetry"
)

// An engine that is counted, and what Prometheus gets to see of it.
func Example() {
	metrics := telemetry.New(nil)
	engine, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{Observer: metrics.Observer()})
	if err != nil {
		panic(err)
	}
	metrics.Store(engine.Healthy)

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "8e03978e-40d5-43dd-bc93"}, Operation: "POST /payments"}
	for range 3 {
		_, err := engine.Do(context.Background(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: http.StatusCreated}, nil
		})
		if err != nil {
			panic(err)
		}
	}

	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "api_idempotency_reserve_created") || strings.HasPrefix(line, "api_idempotency_reserve_replay") || strings.HasPrefix(line, "retrysafe_store_up") {
			fmt.Print(line)
		}
	}
	// Output:
	// api_idempotency_reserve_created_total 1
	// api_idempotency_reserve_replay_total 2
	// retrysafe_store_up 1
}

// What the gateway does at the end of each request.
func ExampleMetrics_Exchange() {
	metrics := telemetry.New(nil)
	metrics.Routes("POST /payments") // from the configuration
	metrics.Exchange("POST /payments", "replay", http.StatusCreated, 0)
	metrics.Exchange("POST /made-up-by-a-client", "passed", http.StatusNotFound, 0)

	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "retrysafe_responses_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// retrysafe_responses_total{outcome="passed",route="other",status="4xx"} 1
	// retrysafe_responses_total{outcome="replay",route="POST /payments",status="2xx"} 1
}

// What a status page shows without a Prometheus server.
func ExampleMetrics_LastHour() {
	metrics := telemetry.New(nil)
	for _, kind := range []retrysafe.EventKind{retrysafe.EventReserved, retrysafe.EventCompleted, retrysafe.EventReplayed, retrysafe.EventReplayed} {
		metrics.Observer().Observe(retrysafe.Event{Kind: kind})
	}
	ran, replayed := int64(0), int64(0)
	for _, minute := range metrics.LastHour() {
		ran += minute.Ran
		replayed += minute.Replayed
	}
	fmt.Println(ran, "ran,", replayed, "replayed,", metrics.PreventedToday(), "duplicates prevented today")
	// Output:
	// 1 ran, 2 replayed, 2 duplicates prevented today
}

// The duty reads the store; a scrape shows what it has found.
func ExampleMetrics_Unknowns() {
	store := memstore.New(nil)
	engine, err := retrysafe.New(store, nil)
	if err != nil {
		panic(err)
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "8e03978e-40d5-43dd-bc93"}, Operation: "POST /payments"}
	attempt, _, err := engine.Begin(context.Background(), call)
	if err != nil {
		panic(err)
	}
	if err := attempt.Quarantine(context.Background(), context.DeadlineExceeded); err != nil {
		panic(err)
	}

	metrics := telemetry.New(nil)
	duty, _ := metrics.Unknowns(store, nil)
	if _, err := duty.RunOnce(context.Background()); err != nil { // a service gives it to janitor.Run
		panic(err)
	}
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "retrysafe_unknown_outcomes") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// retrysafe_unknown_outcomes{reason="timeout"} 1
}
