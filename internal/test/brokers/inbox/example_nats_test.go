package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/outbox/sink/natssink"
)

// A consumer of NATS JetStream. The stream drops what is sent again within its own
// window; what the consumer does not acknowledge in time comes again all the same.
func Example_jetStream() {
	ctx := context.Background()
	db, ledger, closeDB := openLedger(ctx)
	defer closeDB()
	js, closeJS := startJetStream()
	defer closeJS()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "payments", Subjects: []string{"payments"}})
	if err != nil {
		log.Fatal(err)
	}
	sink, err := natssink.New(js, nil)
	if err != nil {
		log.Fatal(err)
	}
	sendTwice(ctx, sink)

	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "ledger", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		log.Fatal(err)
	}
	for delivery := range 2 {
		msg, err := consumer.Next()
		if err != nil {
			log.Fatal(err)
		}
		m := inbox.Message{Scope: "shop", Key: msg.Headers().Get(natssink.HeaderKey), Payload: msg.Data()}
		fresh, err := ledger.Once(ctx, m, func(ctx context.Context, tx *sql.Tx) error { return book(ctx, tx, m.Payload) })
		if err != nil {
			log.Fatal(err) // without an acknowledgement it comes again
		}
		fmt.Println("fresh:", fresh)
		if delivery == 0 {
			err = msg.Nak() // as if the acknowledgement were lost
		} else {
			err = msg.Ack()
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true
	// fresh: false
	// balance: 100
}

func startJetStream() (jetstream.JetStream, func()) {
	dir, err := os.MkdirTemp("", "jetstream")
	if err != nil {
		log.Fatal(err)
	}
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	broker.Start()
	if !broker.ReadyForConnections(20 * time.Second) {
		log.Fatal("the broker is not ready")
	}
	conn, err := nats.Connect(broker.ClientURL())
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	return js, func() {
		conn.Close()
		broker.Shutdown()
		broker.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
