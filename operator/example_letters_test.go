package operator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A receiver refuses a message for good. It is a dead letter then, until a person
// has it sent again.
func ExampleDeadLetters() {
	ctx := context.Background()
	store := memstore.New(nil)
	open := false
	sink := outbox.SinkFunc(func(_ context.Context, d *outbox.Delivery) outbox.Receipt {
		if !open {
			return outbox.Receipt{Err: outbox.Permanent(errors.New("account closed"))}
		}
		fmt.Printf("delivered %s\n", d.Payload)
		return outbox.Receipt{}
	})
	worker, _ := outbox.NewWorker(store.Outbox(), sink, nil)
	tx, _ := store.Begin(ctx)
	_ = tx.Enqueue(ctx, outbox.Message{Topic: "payouts", Payload: []byte("payout 17")})
	_ = tx.Commit(ctx)
	_, _ = worker.RunOnce(ctx)

	service, _ := operator.New(store, nil)
	letters := service.DeadLetters(store.Outbox(), 0)
	list, _ := letters.List(ctx, 0, 10)
	fmt.Printf("%s: %s\n", list[0].Payload, list[0].Why)

	open = true
	entry, err := letters.Redrive(ctx, operator.DeadLetterAction{
		By: "anna", Why: "they have a new account", Letter: list[0].ID, Revision: list[0].Revision,
	})
	fmt.Println(entry.Outcome, err)
	_, _ = worker.RunOnce(ctx)
	// Output:
	// payout 17: account closed
	// done <nil>
	// delivered payout 17
}
