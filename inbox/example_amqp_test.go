package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox/sink/amqpsink"
)

// A consumer of RabbitMQ. A delivery tag is no key: it counts what came over one
// channel.
func Example_rabbitMQ() {
	ctx := context.Background()
	db, ledger, closeDB := openLedger(ctx)
	defer closeDB()
	broker, err := testservers.StartRabbitMQ(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	conn, err := amqp.Dial(broker.URL(broker.Addr()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := channel.QueueDeclare("payments", true, false, false, false, nil); err != nil {
		log.Fatal(err)
	}
	sink, err := amqpsink.New(broker.URL(broker.Addr()), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	sendTwice(ctx, sink)

	deliveries, err := channel.ConsumeWithContext(ctx, "payments", "ledger", false, false, false, false, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		d := <-deliveries
		m := inbox.Message{Scope: "shop", Key: d.MessageId, Payload: d.Body}
		fresh, err := ledger.Once(ctx, m, func(ctx context.Context, tx *sql.Tx) error { return book(ctx, tx, d.Body) })
		if err != nil {
			log.Fatal(err) // without an acknowledgement it comes again
		}
		fmt.Println("fresh:", fresh, d.Ack(false))
	}
	fmt.Println("balance:", balance(db))
	// Output:
	// fresh: true <nil>
	// fresh: false <nil>
	// balance: 100
}
