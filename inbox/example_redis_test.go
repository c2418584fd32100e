package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox/sink/redissink"
)

// A consumer group of a Redis stream. An entry's id is no key: a message that is sent
// again is another entry.
func Example_redis() {
	ctx := context.Background()
	db, ledger, closeDB := openLedger(ctx)
	defer closeDB()
	server, err := testservers.StartRedis(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	sink, err := redissink.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	sendTwice(ctx, sink)

	if err := client.XGroupCreate(ctx, "payments", "ledger", "0").Err(); err != nil {
		log.Fatal(err)
	}
	streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "ledger", Consumer: "one", Streams: []string{"payments", ">"}}).Result()
	if err != nil {
		log.Fatal(err)
	}
	for _, entry := range streams[0].Messages {
		key, _ := entry.Values[redissink.FieldKey].(string)
		payload, _ := entry.Values[redissink.FieldPayload].(string)
		m := inbox.Message{Scope: "shop", Key: key, Payload: []byte(payload)}
		fresh, err := ledger.Once(ctx, m, func(ctx context.Context, tx *sql.Tx) error { return book(ctx, tx, m.Payload) })
		if err != nil {
			log.Fatal(err) // without an acknowledgement it is claimed again (XAUTOCLAIM)
		}
		fmt.Println("fresh:", fresh, "acknowledged:", client.XAck(ctx, "payments", "ledger", entry.ID).Val())
	}
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true acknowledged: 1
	// fresh: false acknowledged: 1
	// balance: 100
}
