package httpkey_test

import (
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// CompleteTx commits the answer together with what it tells of: either both are
// there or neither is, whenever the process dies.
func ExampleCompleteTx() {
	store := memstore.New(nil)
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}})
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, exampleTenant, nil)
	if err != nil {
		panic(err)
	}
	balance := 0
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		tx, err := store.Begin(ctx)
		if err != nil {
			execution, _ := retrysafe.FromContext(ctx)
			_ = execution.Release(ctx, err) // nothing was executed; without this the outcome would be unknown
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		tx.OnCommit(func() { balance += 1200 }) // the business write

		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "booked")
		if err := httpkey.CompleteTx(ctx, w, tx); err != nil {
			return // it is rolled back, and the client is told so
		}
		_ = tx.Commit(ctx) // the guard finds out by itself whether it took place
	}))
	examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)
	examplePost(h, "8e03978e-40d5-43dd-bc93", `{"amount":1200}`)
	fmt.Println("balance:", balance)
	// Output:
	// 201 booked
	// 201 booked (replayed)
	// balance: 1200
}
