package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// If the outbox is full, Enqueue returns an error and its transaction cannot commit.
func ExampleBackpressure() {
	ctx := context.Background()
	store := memstore.New(nil)
	brake, _ := outbox.NewBackpressure(store.Outbox(), &outbox.BackpressureOptions{MaxWaiting: 1})
	for range 2 {
		tx, _ := store.Begin(ctx)
		err := brake.On(tx).Enqueue(ctx, outbox.Message{Topic: "payouts"})
		fmt.Println(errors.Is(err, outbox.ErrFull), tx.Commit(ctx) == nil)
	}
	// Output:
	// false true
	// true false
}
