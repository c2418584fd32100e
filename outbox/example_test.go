package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// The golden path on one SQLite file: the transfer, its message and the key that was
// handed to the message commit together; the worker calls the provider; retries get
// the provider's answer.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"), nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE transfers (amount INTEGER)`); err != nil {
		panic(err)
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}})
	if err != nil {
		panic(err)
	}

	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "8e03978e-40d5-43dd-bc93"}, Operation: "POST /transfers"}
	ask := func() {
		out, err := engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{}, transfer(ctx, store, x, 1200)
		})
		fmt.Println(out.Status, string(out.Body), err)
	}
	ask()
	ask()

	provider := outbox.SinkFunc(func(_ context.Context, d *outbox.Delivery) outbox.Receipt {
		fmt.Printf("the provider gets %s\n", d.Payload)
		return outbox.Receipt{ProviderRef: "ch_1", Answer: &retrysafe.Result{Status: 201, Body: []byte(`{"id":"ch_1"}`)}}
	})
	worker, err := outbox.NewWorker(store.Outbox(), provider, nil)
	if err != nil {
		panic(err)
	}
	if _, err := worker.RunOnce(ctx); err != nil { // a service has worker.Run(ctx) in the background
		panic(err)
	}
	ask()
	// Output:
	// 0  retrysafe: accepted, not started yet
	// 0  retrysafe: accepted, not started yet
	// the provider gets {"amount":1200}
	// 201 {"id":"ch_1"} <nil>
}

// transfer books a transfer and enqueues the call to the provider, in one commit.
func transfer(ctx context.Context, store *sqlitestore.Store, x *retrysafe.Execution, amount int) error {
	tx, err := store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if _, err := tx.ExecContext(ctx, `INSERT INTO transfers VALUES (?)`, amount); err != nil {
		return err
	}
	if err := enqueueCharge(ctx, store, x, tx, amount); err != nil {
		return err
	}
	return tx.Commit()
}

func enqueueCharge(ctx context.Context, store *sqlitestore.Store, x *retrysafe.Execution, tx *sql.Tx, amount int) error {
	joined := store.Tx(tx)
	key, err := x.HandOver(ctx, joined, 21*time.Hour) // from the commit on it is the message's
	if err != nil {
		return err
	}
	return joined.Enqueue(ctx, outbox.Message{
		Topic:   "charges",
		Key:     x.DownstreamKey("charge"), // the same on every try
		Payload: fmt.Appendf(nil, `{"amount":%d}`, amount),
		Settles: &key,
	})
}

// With receipts a provider's own name for an effect leads back to the key whose operation
// it was, also long after the message was delivered.
func ExampleOptions_receipts() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"), nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE transfers (amount INTEGER)`); err != nil {
		panic(err)
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}})
	if err != nil {
		panic(err)
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}, Operation: "POST /transfers"}
	_, _ = engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{}, transfer(ctx, store, x, 1200)
	})

	provider := outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt {
		return outbox.Receipt{ProviderRef: "ch_1", Answer: &retrysafe.Result{Status: 201}}
	})
	worker, err := outbox.NewWorker(store.Outbox(), provider, &outbox.Options{KeepReceipts: 90 * 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	if _, err := worker.RunOnce(ctx); err != nil {
		panic(err)
	}
	find := func(ctx context.Context, providerRef string) (retrysafe.Ref, error) {
		list, err := store.Outbox().Receipts(ctx, outbox.ReceiptQuery{ProviderRef: providerRef, Limit: 2})
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("%d messages have this provider's id: %w", len(list), retrysafe.ErrNotFound)
		}
		if err != nil {
			return retrysafe.Ref{}, err
		}
		return list[0].Settled, nil
	}
	fmt.Println(find(ctx, "ch_1"))
	_, err = find(ctx, "ch_2")
	fmt.Println(err)
	// Output:
	// {tenant-1 order-42} <nil>
	// 0 messages have this provider's id: retrysafe: no such key
}
