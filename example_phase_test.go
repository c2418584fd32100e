package retrysafe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A retry goes on where the attempt before it stopped.
func ExamplePhase() {
	engine, _ := retrysafe.New(memstore.New(nil), &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume},
	})
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	for attempt := 1; attempt <= 2; attempt++ {
		out, err := engine.Do(context.Background(), call, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
			number, err := retrysafe.Phase(ctx, "number", func(context.Context) (int, error) {
				fmt.Println("drawing a number")
				return 17, nil
			})
			if err == nil && attempt == 1 {
				err = errors.New("out of luck")
			}
			return retrysafe.Result{Status: 201, Body: fmt.Append(nil, number)}, err
		})
		fmt.Println(out.Status, string(out.Body), err)
	}
	// Output:
	// drawing a number
	// 0  out of luck
	// 201 17 <nil>
}

// The writes of a phase and its result are one commit.
func ExamplePhaseTx() {
	store := memstore.New(nil)
	engine, _ := retrysafe.New(store, &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseResume},
	})
	rows := 0
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	for attempt := 1; attempt <= 2; attempt++ {
		out, err := engine.Do(context.Background(), call, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
			id, err := retrysafe.PhaseTx(ctx, store, "order", func(_ context.Context, tx *memstore.Tx) (string, error) {
				tx.OnCommit(func() { rows++ }) // the business write
				return "order-1", nil
			})
			if err == nil && attempt == 1 {
				err = errors.New("out of luck")
			}
			return retrysafe.Result{Status: 201, Body: []byte(id)}, err
		})
		fmt.Println(out.Status, string(out.Body), err, rows)
	}
	// Output:
	// 0  out of luck 1
	// 201 order-1 <nil> 1
}

// Under one key go the same bytes, whatever the next attempt would send.
func ExampleEffect() {
	engine, _ := retrysafe.New(memstore.New(nil), &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume},
	})
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	for attempt := 1; attempt <= 2; attempt++ {
		request := fmt.Appendf(nil, "12 EUR, asked for at 12:0%d", attempt)
		out, err := engine.Do(context.Background(), call, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
			id, err := retrysafe.Effect(ctx, "charge", request, func(_ context.Context, a retrysafe.Attempt) (string, error) {
				fmt.Printf("call %d, %s: %s\n", a.N, a.Key, a.Request)
				if a.N == 1 {
					return "", errors.New("connection lost")
				}
				a.Provider("ch_1")
				return "ch_1", nil
			})
			return retrysafe.Result{Status: 201, Body: []byte(id)}, err
		})
		fmt.Println(out.Status, string(out.Body), err)
	}
	// Output:
	// call 1, db535ca3-15bb-8160-9d0e-cd78421c5ac1: 12 EUR, asked for at 12:01
	// 0  connection lost
	// call 2, db535ca3-15bb-8160-9d0e-cd78421c5ac1: 12 EUR, asked for at 12:01
	// 201 ch_1 <nil>
}
