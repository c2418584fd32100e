package conform_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/retrysafe/retrysafe/conform"
)

// An API that ignores keys is found out.
func ExampleRun() {
	var orders atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, `{"order": %d}`, orders.Add(1))
	}))
	defer server.Close()
	report, err := conform.Run(context.Background(), &conform.Options{
		URL:     server.URL,
		Request: conform.Request{Path: "/orders", Body: []byte(`{"amount": 1200}`)},
		Effects: conform.Effects{Pointer: "/order"},
		Only:    []string{"replay/effect"},
		Rate:    1000,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Err())
	// Output: replay/effect is violated: one request and its retry had 2 effects
}

func ExamplePlan() {
	plan, err := conform.Plan(&conform.Options{
		URL:     "http://127.0.0.1:8080",
		Request: conform.Request{Path: "/orders", Body: []byte(`{"amount": 1200}`)},
		Only:    []string{"base"},
		RunID:   "example",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range plan {
		fmt.Println(p.Check, p.Step, p.Times, p.What)
	}
	// Output:
	// base/answer first 1 a new operation
	// base/answer second 1 another one
}

func ExampleChecks() {
	c := conform.Checks()[2]
	fmt.Println(c.Check, c.Severity)
	fmt.Println(c.Requirement)
	// Output:
	// replay/effect critical
	// A retry of a completed request does not run it again.
}
