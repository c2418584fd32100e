package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func ExampleNew() {
	ctx, s := context.Background(), memstore.New(nil)
	payment := retrysafe.Write{Term: 30 * time.Second, Record: retrysafe.Record{
		Ref:   retrysafe.Ref{Scope: "acct_1", Key: "8e03978e"},
		State: retrysafe.StateInProgress, Owner: retrysafe.Owner{1}, Attempt: 1,
		Version: retrysafe.RecordVersion,
	}}
	stored, err := s.Create(ctx, payment)
	fmt.Println("first:", stored.State, err)

	settled := stored.Update()
	settled.State, settled.Result, settled.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}, 24*time.Hour
	_, err = s.Swap(ctx, settled)
	fmt.Println("settled:", err)

	payment.Owner = retrysafe.Owner{2}
	stored, err = s.Create(ctx, payment)
	fmt.Println("retry:", stored.State, stored.Result.Status, errors.Is(err, retrysafe.ErrExists))
	// Output:
	// first: in_progress <nil>
	// settled: <nil>
	// retry: completed 201 true
}

// The business write and the answer commit together or not at all.
func ExampleStore_Begin() {
	ctx, s := context.Background(), memstore.New(nil)
	balance := 100

	tx, err := s.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback(ctx) // does nothing after a commit

	ref := retrysafe.Ref{Scope: "acct_1", Key: "8e03978e"}
	if _, err := tx.Reserve(ctx, ref); !errors.Is(err, retrysafe.ErrNotFound) {
		fmt.Println("the key is used or busy:", err)
		return
	}
	tx.OnCommit(func() { balance -= 30 })
	if _, err := tx.Create(ctx, retrysafe.Write{Term: 24 * time.Hour, Record: retrysafe.Record{
		Ref: ref, State: retrysafe.StateCompleted, Owner: retrysafe.Owner{1}, Attempt: 1,
		Version: retrysafe.RecordVersion, Result: &retrysafe.Result{Status: 201},
	}}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("before commit:", balance)
	fmt.Println(tx.Commit(ctx))
	fmt.Println("after commit:", balance)
	// Output:
	// before commit: 100
	// <nil>
	// after commit: 70
}
