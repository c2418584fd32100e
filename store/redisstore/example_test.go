package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// The first call under a key runs, every retry gets its answer.
func ExampleOpen() {
	ctx := context.Background()
	server, err := testservers.StartRedis(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	url := "redis://" + server.Addr()

	store, err := redisstore.Open(ctx, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	durability, err := store.Durability(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(durability) // log it when the program starts
	engine, err := retrysafe.New(store, nil)
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
	// class D: one server, append-only file true, appendfsync always, 0 replicas, 0 of them waited for
	// 201 paid replayed: false <nil>
	// 201 paid replayed: true <nil>
}
