package tiered_test

import (
	"context"
	"fmt"
	"log"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A cache stands before any store. The first request reserves and settles below,
// and retries are answered from memory.
func ExampleNew() {
	ctx := context.Background()
	below := memstore.New(nil) // in production: a store on disk, or across the network
	cache := tiered.New(below, nil)
	engine, err := retrysafe.New(cache, nil)
	if err != nil {
		log.Fatal(err)
	}

	call := retrysafe.Call{
		Ref:         retrysafe.Ref{Scope: "acme", Key: "order-4711"},
		Fingerprint: retrysafe.Fingerprint{Alg: 1},
	}
	for range 3 {
		out, err := engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid")}, nil
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	fmt.Println("answered from memory:", cache.Stats().Hits)

	cache.Forget(call.Ref) // an operator has erased the answer on another node
	fmt.Println("cached:", cache.Stats().Entries)
	// Output:
	// 201 paid replayed: false <nil>
	// 201 paid replayed: true <nil>
	// 201 paid replayed: true <nil>
	// answered from memory: 2
	// cached: 0
}
