package dynamostore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// The first call under a key runs, every retry gets its answer. A program of yours makes
// its client by dynamodb.NewFromConfig.
func ExampleOpen() {
	ctx := context.Background()
	server := dynamofake.New()
	defer server.Close()
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})

	store, err := dynamostore.Open(ctx, client, "retrysafe", nil)
	if err != nil {
		log.Fatal(err)
	}
	durability, err := store.Durability(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(durability) // say it aloud when the program starts
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
	// class B: DynamoDB, strongly consistent in its region, time to live true
	// 201 paid replayed: false <nil>
	// 201 paid replayed: true <nil>
}
