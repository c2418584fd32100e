package misusetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// FailingOutbox tests that a step of an outbox which the database refuses half-way is an
// error and leaves nothing behind: the message, its key and its receipt change together.
// Forbid makes every such change of a table's rows fail, until allow is called.
func FailingOutbox(t *testing.T, s retrysafe.Store, box outbox.Store, enqueue func(...outbox.Message), forbid func(event, table string) (allow func())) {
	t.Helper()
	rec, err := s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "handed over"}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	settle := rec.Update()
	settle.State, settle.Term, settle.Result = retrysafe.StateCompleted, time.Hour, &retrysafe.Result{Status: 201}
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	message := outbox.Message{Topic: "t", Group: "g", Payload: []byte("hello"), Settles: &rec}
	enqueue(message)
	due := func(when string, want int) (d outbox.Delivery) {
		t.Helper()
		list, err := box.Due(t.Context(), held.Shards, 10)
		if err != nil || len(list) != want {
			t.Fatalf("%s %d messages are due, %v; want %d", when, len(list), err, want)
		}
		if want == 0 {
			return d
		}
		return list[0]
	}
	dead := func(when string, want int) (l outbox.DeadLetter) {
		t.Helper()
		list, err := box.DeadLetters(t.Context(), 0, 10)
		if err != nil || len(list) != want {
			t.Fatalf("%s there are %d dead letters, %v; want %d", when, len(list), err, want)
		}
		if want == 0 {
			return l
		}
		return list[0]
	}
	fails := func(event, table, what string, step func() error) {
		t.Helper()
		allow := forbid(event, table)
		if err := step(); err == nil {
			t.Errorf("%s succeeds, and no %s of %s is possible", what, event, table)
		}
		allow()
		if got, err := s.Load(t.Context(), rec.Ref); err != nil || got.Revision != rec.Revision {
			t.Errorf("%s that has failed has changed the key, %v", what, err)
		}
	}
	first := due("at first", 1)
	ack := func(kind outbox.AckKind, keep, after time.Duration) error {
		_, err := box.Ack(t.Context(), []outbox.Ack{{
			ID: first.ID, Shard: first.Shard, Group: "g", Kind: kind, Tries: 1, Settle: &settle, Keep: keep, After: after, Message: &message, Why: "closed",
		}})
		return err
	}
	fails("DELETE", "retrysafe_outbox", "a delivery", func() error { return ack(outbox.AckDelivered, 0, 0) })
	fails("INSERT", "retrysafe_dead", "a burial", func() error { return ack(outbox.AckDead, 0, 0) })
	fails("UPDATE", "retrysafe_outbox", "a retry", func() error { return ack(outbox.AckRetry, 0, time.Hour) })
	fails("UPDATE", "retrysafe_keys", "a settlement", func() error { return ack(outbox.AckDelivered, 0, 0) })
	keeper, keeps := box.(outbox.ReceiptKeeper)
	if keeps {
		fails("INSERT", "retrysafe_receipts", "a receipt", func() error { return ack(outbox.AckDelivered, time.Hour, 0) })
		if list, err := keeper.Receipts(t.Context(), outbox.ReceiptQuery{Limit: 10}); err != nil || len(list) != 0 {
			t.Errorf("there are %d receipts, %v", len(list), err)
		}
	}
	fails("UPDATE", "retrysafe_shards", "a lease", func() error {
		_, err := box.Lease(t.Context(), retrysafe.Owner{1}, 2*time.Hour)
		return err
	})
	if d := due("after steps that failed", 1); d.ID != first.ID || d.Tries != 0 {
		t.Errorf("after steps that failed message %d comes with %d tries", d.ID, d.Tries)
	}
	dead("after steps that failed", 0)

	wait := outbox.Ack{ID: first.ID, Shard: first.Shard, Group: "g", Kind: outbox.AckRetry, Tries: 1, After: time.Hour, Why: "closed"}
	if _, err := box.Ack(t.Context(), []outbox.Ack{wait}); err != nil {
		t.Fatal(err)
	}
	skipper := box.(outbox.Skipper)
	skip := func() error {
		_, err := skipper.Skip(t.Context(), outbox.SkipRequest{ID: first.ID, Tries: 1, Settle: &settle})
		return err
	}
	fails("INSERT", "retrysafe_dead", "a skip", skip)
	fails("DELETE", "retrysafe_outbox", "a skip", skip)
	fails("UPDATE", "retrysafe_keys", "a skip", skip)
	dead("after skips that failed", 0)
	if list, err := skipper.Failing(t.Context(), 0, 10); err != nil || len(list) != 1 {
		t.Errorf("after skips that failed %d messages wait, %v", len(list), err)
	}

	wait.Kind = outbox.AckDead
	if _, err := box.Ack(t.Context(), []outbox.Ack{wait}); err != nil {
		t.Fatal(err)
	}
	letter := dead("after a burial", 1)
	for event, table := range map[string]string{"INSERT": "retrysafe_outbox", "DELETE": "retrysafe_dead"} {
		fails(event, table, "a redrive", func() error {
			return box.Dispose(t.Context(), outbox.Disposal{ID: letter.ID, Revision: letter.Revision, Redrive: true})
		})
	}
	due("after redrives that failed", 0)
	dead("after redrives that failed", 1)
	endedOutbox(t, box, held.Shards, wait, letter)
}

// endedOutbox tests that each step whose context has ended is an error: a worker would take
// no error for an empty outbox, and an operator for a step that is done.
func endedOutbox(t *testing.T, box outbox.Store, shards []outbox.Shard, ack outbox.Ack, letter outbox.DeadLetter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	steps := map[string]func() error{
		"Lease":       func() error { _, err := box.Lease(ctx, retrysafe.Owner{2}, time.Hour); return err },
		"Due":         func() error { _, err := box.Due(ctx, shards, 10); return err },
		"Ack":         func() error { _, err := box.Ack(ctx, []outbox.Ack{ack}); return err },
		"DeadLetters": func() error { _, err := box.DeadLetters(ctx, 0, 10); return err },
		"Dispose":     func() error { return box.Dispose(ctx, outbox.Disposal{ID: letter.ID, Revision: letter.Revision}) },
		"Depth":       func() error { _, err := box.(outbox.DepthReporter).Depth(ctx); return err },
		"Failing":     func() error { _, err := box.(outbox.Skipper).Failing(ctx, 0, 10); return err },
	}
	if keeper, ok := box.(outbox.ReceiptKeeper); ok {
		steps["Receipts"] = func() error { _, err := keeper.Receipts(ctx, outbox.ReceiptQuery{Limit: 10}); return err }
		steps["ForgetReceipts"] = func() error { return keeper.ForgetReceipts(ctx, retrysafe.Ref{Scope: "tenant", Key: "handed over"}) }
	}
	if quick, ok := box.(outbox.QuickReader); ok {
		steps["DueExcept"] = func() error { _, _, err := quick.DueExcept(ctx, shards, nil, 10); return err }
	}
	for name, step := range steps {
		if err := step(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended = %v", name, err)
		}
	}
	if list, err := box.DeadLetters(t.Context(), 0, 10); err != nil || len(list) != 1 {
		t.Errorf("after these steps there are %d dead letters, %v", len(list), err)
	}
}
