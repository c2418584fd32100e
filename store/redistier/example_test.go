package redistier_test

import (
	"context"
	"fmt"
	"log"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/redistier"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// Two tiers before a store: this process's memory, and a Redis that all processes share.
func ExampleOpen() {
	ctx := context.Background()
	server, err := testservers.StartRedis(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	url, below := "redis://"+server.Addr(), memstore.New(nil)

	shared, err := redistier.Open(url, below, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	engine, err := retrysafe.New(tiered.New(shared, nil), nil)
	if err != nil {
		log.Fatal(err)
	}

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: "order-4711"}, Operation: "POST /payments"}
	for range 2 {
		out, err := engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid")}, nil
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed, err)
	}
	// Output:
	// 201 paid replayed: false <nil>
	// 201 paid replayed: true <nil>
}
