package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/outbox/sink/kafkasink"
)

// A consumer group of Kafka. Offsets are committed after the inbox has the message; a
// rebalance in between only brings it again.
func Example_kafka() {
	ctx := context.Background()
	db, ledger, closeDB := openLedger(ctx)
	defer closeDB()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	sink, err := kafkasink.New(producer, nil)
	if err != nil {
		log.Fatal(err)
	}
	sendTwice(ctx, sink)

	consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumerGroup("ledger"), kgo.ConsumeTopics("payments"),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for seen := 0; seen < 2; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		for _, r := range fetches.Records() {
			m := inbox.Message{Scope: "shop", Key: keyOf(r), Payload: r.Value}
			fresh, err := ledger.Once(ctx, m, func(ctx context.Context, tx *sql.Tx) error { return book(ctx, tx, r.Value) })
			if err != nil {
				log.Fatal(err) // its offset is not committed, so it comes again
			}
			fmt.Println("fresh:", fresh)
			seen++
		}
		if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true
	// fresh: false
	// balance: 100
}

// keyOf returns the message's key, which is not the record's: that is its group.
func keyOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == kafkasink.HeaderKey {
			return string(h.Value)
		}
	}
	return "" // which an inbox refuses
}
