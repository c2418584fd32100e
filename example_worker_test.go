package retrysafe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A worker takes messages from a queue that may deliver each of them more than once.
func ExampleDoJSON() {
	type order struct{ Account, Item string }
	type receipt struct{ ID string }
	engine, err := retrysafe.New(memstore.New(nil), &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}})
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := func(_ context.Context, downstreamKey string, o order) (receipt, error) { // a provider that honours the key
		fmt.Println("charging", o.Account)
		return receipt{"ch_1"}, nil
	}
	handle := func(ctx context.Context, id string, o order) string {
		call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "orders", Key: id}, Operation: "charge"}
		got, err := retrysafe.DoJSON(ctx, engine, call, o, func(ctx context.Context, x *retrysafe.Execution) (receipt, error) {
			return charge(ctx, x.DownstreamKey("charge"), o)
		})
		switch {
		case err == nil:
			return "ack, " + got.ID
		case errors.Is(err, retrysafe.ErrUnknown), errors.Is(err, retrysafe.ErrMismatch), errors.Is(err, retrysafe.ErrInvalidCall):
			return "dead letter: " + err.Error()
		default:
			return "again later: " + err.Error()
		}
	}
	ctx := context.Background()
	fmt.Println(handle(ctx, "msg-1", order{"acme", "book"}))
	fmt.Println(handle(ctx, "msg-1", order{"acme", "book"})) // delivered again
	fmt.Println(handle(ctx, "msg-1", order{"acme", "piano"}))
	// Output:
	// charging acme
	// ack, ch_1
	// ack, ch_1
	// dead letter: retrysafe: key was used with a different request
}
