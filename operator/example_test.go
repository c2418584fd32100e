package operator_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var ctx = context.Background()

// oneOf returns a store with a single payment in it.
func oneOf(state retrysafe.State) (retrysafe.Store, retrysafe.Ref) {
	s, r := memstore.New(nil), in(state, "order-4711")
	r.Inquiry.Dead = state == retrysafe.StateUnknown
	if _, err := s.Create(ctx, r); err != nil {
		log.Fatal(err)
	}
	return s, r.Ref
}

func ExampleNew() {
	store := memstore.New(nil)

	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	page, err := service.List(ctx, operator.Filter{})
	fmt.Println(len(page.Records), page.More, err)
	// Output:
	// 0 false <nil>
}

// After an outage: all charges whose service answered 500 are released at once.
func ExampleService_Apply() {
	store := memstore.New(nil)
	for i := range 3 {
		if _, err := store.Create(ctx, failedWith("POST /charges", 500, fmt.Sprintf("order-%d", i))); err != nil {
			log.Fatal(err)
		}
	}
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	batch := operator.Batch{
		By: "anna", Why: "the service failed before it called the provider", Verb: "release",
		Filter: operator.Filter{Operation: "POST /charges", Status: 500},
	}
	selection, err := service.Select(ctx, batch)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(selection.Count, "would be released")

	entry, err := service.Apply(ctx, batch, selection)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(entry.Counts.Done, entry.Outcome)
	// Output:
	// 3 would be released
	// 3 done
}

// What needs a person, by operation, reason and status of the service.
func ExampleService_Groups() {
	store := memstore.New(nil)
	for i, status := range []int{500, 500, 502} {
		if _, err := store.Create(ctx, failedWith("POST /charges", status, fmt.Sprintf("order-%d", i))); err != nil {
			log.Fatal(err)
		}
	}
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	groups, err := service.Groups(ctx, operator.Filter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range groups {
		fmt.Println(g.Count, g.Operation, g.Status, g.Reason)
	}
	// Output:
	// 2 POST /charges 500 the service answered 500
	// 1 POST /charges 502 the service answered 502
}

// What a batch would change is counted first.
func ExampleService_Select() {
	store, _ := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	selection, err := service.Select(ctx, operator.Batch{Verb: "redrive", Filter: operator.Filter{Operation: "POST /*"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(selection.Count, selection.Sample[0].Key)
	// Output:
	// 1 order-4711
}

// What is stuck: dead letters, and attempts whose lease has lapsed.
func ExampleService_List() {
	store, _ := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	for _, stuck := range []operator.Filter{
		{Dead: true},
		{States: []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateAccepted}, Due: true},
		{States: []retrysafe.State{retrysafe.StateUnknown}},
	} {
		for more := true; more; {
			page, err := service.List(ctx, stuck)
			if err != nil {
				log.Fatal(err)
			}
			for _, r := range page.Records {
				fmt.Println(r.Key, r.State, r.Operation, r.Reason, len(r.Inquiry.Notes))
			}
			stuck.After, more = page.Next, page.More
		}
	}
	// Output:
	// order-4711 unknown POST /payments  0
	// order-4711 unknown POST /payments  0
}

// It has happened: the provider has it.
func ExampleService_Resolve() {
	store, ref := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	record, err := service.Show(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	entry, err := service.Resolve(ctx, operator.Action{
		By: "anna", Why: "ch_17 is in the provider's dashboard", ProviderRef: "ch_17",
		Ref: record.Ref, Revision: record.Revision,
	}, retrysafe.Result{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}},
		Body:   []byte(`{"id":"ch_17","status":"paid"}`),
	})
	fmt.Println(entry.Outcome, entry.To.State, entry.Status, err)
	// Output:
	// done completed 201 <nil>
}

// It was refused for good.
func ExampleService_Decline() {
	store, ref := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	record, err := service.Show(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	entry, err := service.Decline(ctx, operator.Action{
		By: "anna", Why: "the card was refused", Ref: record.Ref, Revision: record.Revision,
	}, retrysafe.Result{Status: 402})
	fmt.Println(entry.Outcome, entry.To.State, entry.Status, err)
	// Output:
	// done completed 402 <nil>
}

// It has not happened, and the process that ran it is dead.
func ExampleService_Release() {
	store, ref := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	record, err := service.Show(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}

	action := operator.Action{
		By: "anna", Why: "the provider knows nothing of it, and node 3 is switched off",
		Ref: record.Ref, Revision: record.Revision,
	}
	entry, err := service.Release(ctx, action)
	fmt.Println(entry.Outcome, entry.To.State, err)

	_, err = service.Release(ctx, action) // on the page from before
	fmt.Println(errors.Is(err, operator.ErrStale))
	// Output:
	// done retryable <nil>
	// true
}

// The stored answer is wrong, and a new run is wanted.
func ExampleService_Forget() {
	store, ref := oneOf(retrysafe.StateCompleted)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	record, err := service.Show(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}

	entry, err := service.Forget(ctx, operator.Action{
		By: "anna", Why: "a wrong 500 was kept, nothing was charged", Ref: record.Ref, Revision: record.Revision,
	})
	fmt.Println(entry.Outcome, entry.To.State, err)
	// Output:
	// done retryable <nil>
}

// A person's data must go, and the operation must not run again.
func ExampleService_Erase() {
	store, ref := oneOf(retrysafe.StateCompleted)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	record, err := service.Show(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}

	_, err = service.Erase(ctx, operator.Action{
		By: "anna", Why: "request 42 for erasure", Ref: record.Ref, Revision: record.Revision,
	})
	if err != nil {
		log.Fatal(err)
	}

	record, err = service.Show(ctx, ref)
	fmt.Println(record.State, record.Result.Status, len(record.Result.Body), record.Result.Omitted, err)
	// Output:
	// completed 201 0 true <nil>
}

// The provider answers again: let the resolvers try.
func ExampleService_Redrive() {
	store, ref := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	record, err := service.Show(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}

	entry, err := service.Redrive(ctx, operator.Action{
		By: "anna", Why: "the provider's outage is over", Ref: record.Ref, Revision: record.Revision,
	})
	fmt.Println(entry.Outcome, entry.To.State, err)
	// Output:
	// done unknown <nil>
}

// A backup was restored.
func ExampleService_Quarantine() {
	store, _ := oneOf(retrysafe.StateRetryable)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	suspects := operator.Suspects{ID: "restore-2026-03-01", By: "anna", Why: "restored the backup of 3 a.m."}
	report, err := service.Survey(ctx, suspects)
	fmt.Println("would set aside:", report.Quarantined, err)

	entry, err := service.Quarantine(ctx, suspects) // again under this ID, if it is cut short
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("set aside:", entry.Report.Quarantined, "left to others:", entry.Report.Moved)
	// Output:
	// would set aside: 1 <nil>
	// set aside: 1 left to others: 0
}

// What each operator did tonight, and what was refused.
func ExampleService_Audit() {
	store, ref := oneOf(retrysafe.StateUnknown)
	service, err := operator.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = service.Release(ctx, operator.Action{By: "anna", Why: "an old page", Ref: ref, Revision: 1})
	if !errors.Is(err, operator.ErrStale) {
		log.Fatal(err)
	}

	entries, err := service.Audit(ctx, operator.AuditFilter{Since: time.Now().Add(-12 * time.Hour)})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.By, e.Verb, e.Ref.Key, e.Outcome, e.Code, e.Why)
	}
	// Output:
	// anna release order-4711 refused stale an old page
}
