package retrysafe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The first call under a key runs; every other gets its answer.
func Example() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}, Operation: "charge"}
	for range 3 {
		out, err := engine.Do(context.Background(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			fmt.Println("charging the card")
			return retrysafe.Result{Status: 201, Body: []byte("charged")}, nil
		})
		fmt.Println(out.Status, string(out.Body), out.Replayed, err)
	}
	// Output:
	// charging the card
	// 201 charged false <nil>
	// 201 charged true <nil>
	// 201 charged true <nil>
}

// An attempt that may have happened is set aside; no retry runs it.
func ExampleExecution_Quarantine() {
	engine, _ := retrysafe.New(memstore.New(nil), nil)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	x, _, _ := engine.Begin(context.Background(), call)
	_ = x.Quarantine(context.Background(), errors.New("the provider did not answer in time"))

	_, _, err := engine.Begin(context.Background(), call)
	fmt.Println(errors.Is(err, retrysafe.ErrUnknown))
	// Output: true
}

// An error that is marked as proof lets the same key run again.
func ExampleNotExecuted() {
	engine, _ := retrysafe.New(memstore.New(nil), nil)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	for attempt := 1; attempt <= 2; attempt++ {
		out, err := engine.Do(context.Background(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			if attempt == 1 {
				return retrysafe.Result{}, retrysafe.NotExecuted(errors.New("connection refused"))
			}
			return retrysafe.Result{Status: 201}, nil
		})
		fmt.Println(out.Status, err)
	}
	// Output:
	// 0 not executed: connection refused
	// 201 <nil>
}

// Effects in the store's own database commit together with the answer.
func ExampleExecution_CompleteTx() {
	store := memstore.New(nil)
	engine, _ := retrysafe.New(store, &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun},
	})
	rows := 0
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	out, err := engine.Do(context.Background(), call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, err := store.Begin(ctx)
		if err != nil {
			return retrysafe.Result{}, retrysafe.NotExecuted(err)
		}
		tx.OnCommit(func() { rows++ }) // the business write
		if err := x.CompleteTx(ctx, tx, retrysafe.Result{Status: 201, Body: []byte("booked")}); err != nil {
			return retrysafe.Result{}, err
		}
		return retrysafe.Result{}, tx.Commit(ctx)
	})
	fmt.Println(out.Status, string(out.Body), rows, err)
	// Output: 201 booked 1 <nil>
}

// A policy that could repeat an unprotected effect is refused when the engine is
// built, with what to do about it.
func ExampleEngine_With() {
	engine, _ := retrysafe.New(memstore.New(nil), nil)
	_, err := engine.With(retrysafe.Policy{Lapse: retrysafe.LapseRerun})
	fmt.Println(err)
	// Output: retrysafe: policy refused: a lapsed attempt with unprotected effects may have happened, so it cannot rerun; use LapseQuarantine or LapseFail, or make the effects EffectsKeyed or EffectsInTx
}
