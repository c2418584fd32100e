package httpresolver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A provider finds charges by a reference. Its API is asked as it is, and rules say what
// its replies mean.
func ExampleNewLookup() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("reference") == "order-4711" {
			_, _ = io.WriteString(w, `{"data": [{"id": "ch_1", "status": "paid"}]}`)
		} else {
			_, _ = io.WriteString(w, `{"data": []}`)
		}
	}))
	defer provider.Close()
	resolver, err := httpresolver.NewLookup(httpresolver.Lookup{
		URL:         provider.URL + "/charges?reference={key}",
		ProviderRef: "/data/0/id",
		Rules: []httpresolver.Rule{
			{Status: []string{"200"}, When: map[string][]string{"/data/0/status": {"paid"}}, Then: "happened",
				Answer: &httpresolver.Answer{Status: 201, Body: `{"charge":"{/data/0/id}"}`}},
			{Status: []string{"200"}, Absent: []string{"/data/0"}, Then: "not_happened"},
		},
	}, &httpresolver.Options{Name: "acme", Deadline: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"order-4711", "order-4712"} {
		now := time.Now()
		v, err := resolver.Resolve(context.Background(), retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "tenant", Key: key}, State: retrysafe.StateUnknown, UpdatedAt: now.Add(-2 * time.Hour), ReadAt: now,
		})
		fmt.Println(v.By, "says", v.Finding, v.ProviderRef, string(v.Result.Body), err)
	}
	// Output:
	// resolver acme says happened ch_1 {"charge":"ch_1"} <nil>
	// resolver acme says not_happened   <nil>
}

// An endpoint of your own gets a question about each unknown outcome, and replies with a
// verdict.
func ExampleNew() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"verdict": "happened", "evidence": "ch_1 is paid", "answer": {"status": 201, "body": "paid"}}`)
	}))
	defer endpoint.Close()
	resolver, err := httpresolver.New(endpoint.URL+"/resolve", &httpresolver.Options{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New(nil)
	unknown := retrysafe.Write{Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "order-4711"}, State: retrysafe.StateUnknown, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}}
	_, _ = store.Create(context.Background(), unknown)
	reconciler := janitor.NewReconciler(store, resolver, &janitor.ReconcilerOptions{Options: janitor.Options{Logger: slog.New(slog.DiscardHandler)}})
	n, err := reconciler.RunOnce(context.Background())
	fmt.Println("settled:", n, err)
	r, _ := store.Load(context.Background(), unknown.Ref)
	fmt.Printf("%s: %s\n", r.Inquiry.Notes[0].By, r.Inquiry.Notes[0].Text)
	// Output:
	// settled: 1 <nil>
	// resolver payments: happened: ch_1 is paid
}
