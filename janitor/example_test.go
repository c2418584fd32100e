package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Stripe stands for the client of a provider.
type Stripe struct{ charges map[string]string }

var errNoSuchCharge = errors.New("no such charge")

// FindCharge returns the status of the charge with this reference.
func (s *Stripe) FindCharge(_ context.Context, reference string) (id, status string, err error) {
	if status := s.charges[reference]; status != "" {
		return "ch_1", status, nil
	}
	return "", "", errNoSuchCharge
}

// Resolve finds out what became of a payment. The handler has sent the key as the
// charge's reference.
func (s *Stripe) Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	id, status, err := s.FindCharge(ctx, r.Key)
	switch {
	case errors.Is(err, errNoSuchCharge):
		return janitor.NotHappened("no charge with this reference"), nil
	case err != nil:
		return retrysafe.Evidence{}, err // one try in vain
	case status == "succeeded":
		return janitor.Happened(retrysafe.Result{Status: 201, Body: []byte(`{"charge":"` + id + `"}`)}, id), nil
	case status == "failed":
		return janitor.Declined(retrysafe.Result{Status: 402, Body: []byte(`{"error":"declined"}`)}, id), nil
	default:
		return janitor.StillUnknown(id + " is " + status), nil
	}
}

// A payment whose outcome was unknown is settled by what the provider knows, and
// the client's next retry gets the answer.
func ExampleReconciler() {
	ctx, store := context.Background(), memstore.New(nil)
	engine, _ := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Reconcile: time.Nanosecond}})
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	x, _, _ := engine.Begin(ctx, call)
	_ = x.Quarantine(ctx, errors.New("the provider did not answer in time"))
	_, _, err := engine.Begin(ctx, call)
	fmt.Println(err)

	stripe := &Stripe{charges: map[string]string{"order-4711": "succeeded"}}
	reconciler := janitor.NewReconciler(store, stripe, &janitor.ReconcilerOptions{
		By: "resolver stripe", Options: janitor.Options{Logger: slog.New(slog.DiscardHandler)},
	})
	n, err := reconciler.RunOnce(ctx)
	fmt.Println("settled:", n, err)

	_, out, _ := engine.Begin(ctx, call)
	fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed)
	r, _ := store.Load(ctx, call.Ref)
	note := r.Inquiry.Notes[0]
	fmt.Printf("%s: %s, %s\n", note.By, note.State, note.Text)
	// Output:
	// retrysafe: outcome of an earlier attempt is unknown
	// settled: 1 <nil>
	// 201 {"charge":"ch_1"} replayed: true
	// resolver stripe: completed, happened: ch_1
}

// One reconciler for many routes.
func ExampleResolvers() {
	resolvers := janitor.Resolvers{
		"POST /payments": &Stripe{},
		"POST /mails": janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
			return janitor.StillUnknown("mails are not counted"), nil
		}),
	}
	for _, operation := range []string{"POST /payments", "POST /mails", "POST /refunds"} {
		v, _ := resolvers.Resolve(context.Background(), retrysafe.Record{Operation: operation})
		fmt.Printf("%s: %s\n", v.Finding, v.Text)
	}
	// Output:
	// not_happened: no charge with this reference
	// still_unknown: mails are not counted
	// still_unknown: no resolver for operation "POST /refunds"
}

// What a server runs beside its listener, until it stops.
func ExampleRun() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	var (
		store  retrysafe.Store    = memstore.New(nil)
		stripe janitor.Resolver   = &Stripe{}
		seen   retrysafe.Observer // your metrics
	)

	common := janitor.Options{Logger: slog.Default(), Observer: seen}
	err := janitor.Run(ctx,
		janitor.NewSweeper(store, &common),
		janitor.NewReconciler(store, stripe, &janitor.ReconcilerOptions{Options: common}),
		janitor.NewReaper(store, &janitor.ReaperOptions{Options: common}),
	)
	fmt.Println("stopped:", err)
	// Output: stopped: <nil>
}

// An attempt whose process died is set aside, though no client asks for it any more.
func ExampleSweeper() {
	ctx, store := context.Background(), memstore.New(nil)
	dead := retrysafe.Write{Record: retrysafe.Record{ // Term is zero: its lease is over
		Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, State: retrysafe.StateInProgress,
		Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
	}}
	_, _ = store.Create(ctx, dead)

	sweeper := janitor.NewSweeper(store, &janitor.Options{Logger: slog.New(slog.DiscardHandler)})
	n, err := sweeper.RunOnce(ctx)
	fmt.Println("swept:", n, err)
	r, _ := store.Load(ctx, dead.Ref)
	fmt.Println(r.State, "because", r.Reason)
	// Output:
	// swept: 1 <nil>
	// unknown because lease lapsed
}

// An answer that is forgotten leaves a tombstone for a month.
func ExampleReaper() {
	ctx, store := context.Background(), memstore.New(nil)
	engine, _ := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{OnExpired: retrysafe.ExpiredGone, Retention: time.Nanosecond}})
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}}
	_, _ = engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 201}, nil
	})

	reaper := janitor.NewReaper(store, &janitor.ReaperOptions{Tombstone: 30 * 24 * time.Hour})
	n, err := reaper.RunOnce(ctx)
	fmt.Println("expired:", n, err)
	_, _, err = engine.Begin(ctx, call)
	fmt.Println(err)
	// Output:
	// expired: 1 <nil>
	// retrysafe: key has expired
}
