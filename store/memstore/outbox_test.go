package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func TestOutboxContract(t *testing.T) {
	t.Parallel()
	storetest.RunOutbox(t, func(*testing.T) storetest.OutboxHarness {
		s := memstore.New(nil)
		return storetest.OutboxHarness{
			Store: s, Outbox: s.Outbox(),
			Begin: func(ctx context.Context) (storetest.OutboxTx, error) { return s.Begin(ctx) },
		}
	})
}

// Failing messages are listed page by page, until they are due.
func TestFailingMessagesAreListedInPages(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now})
	tx, err := s.Begin(t.Context())
	wantErr(t, "begin", err, nil)
	wantErr(t, "enqueue", tx.Enqueue(t.Context(), outbox.Message{Topic: "1"}, outbox.Message{Topic: "2"}, outbox.Message{Topic: "3"}), nil)
	wantErr(t, "commit", tx.Commit(t.Context()), nil)
	w, err := outbox.NewWorker(s.Outbox(), outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt {
		return outbox.Receipt{Err: errors.New("not now"), After: time.Hour}
	}), nil)
	wantErr(t, "a worker", err, nil)
	_, err = w.RunOnce(t.Context())
	wantErr(t, "a pass", err, nil)
	tx, err = s.Begin(t.Context())
	wantErr(t, "begin", err, nil)
	wantErr(t, "enqueue", tx.Enqueue(t.Context(), outbox.Message{Topic: "not sent yet", Wait: time.Hour}), nil)
	wantErr(t, "commit", tx.Commit(t.Context()), nil)
	var topics string
	for after, pages := int64(0), 0; pages < 3; pages++ {
		list, err := s.Outbox().Failing(t.Context(), after, 2)
		wantErr(t, "a page", err, nil)
		for i := range list {
			after, topics = list[i].ID, topics+list[i].Topic
		}
		topics += "."
	}
	if topics != "12.3.." {
		t.Errorf("the pages are %q, want %q", topics, "12.3..")
	}
	c.Advance(2 * time.Hour)
	if list, err := s.Outbox().Failing(t.Context(), 0, 10); len(list) != 0 || err != nil {
		t.Errorf("of messages that are due, %d are to be skipped: %v", len(list), err)
	}
}

// An acknowledgement that settles a key waits for the transaction that holds the key, and
// holds nothing meanwhile that the transaction needs to commit its own messages.
func TestAckThatWaitsForATransactionDoesNotHoldItUp(t *testing.T) {
	t.Parallel()
	for name, ack := range map[string]func(context.Context, *memstore.Outbox, outbox.Delivery, *retrysafe.Write) (outbox.AckResult, error){
		"Ack": func(ctx context.Context, box *memstore.Outbox, d outbox.Delivery, settle *retrysafe.Write) (outbox.AckResult, error) {
			ended, err := box.Ack(ctx, []outbox.Ack{{ID: d.ID, Shard: d.Shard, Kind: outbox.AckDelivered, Tries: 2, Settle: settle}})
			if err != nil {
				return outbox.AckResult{}, err
			}
			return ended[0], nil
		},
		"Skip": func(ctx context.Context, box *memstore.Outbox, d outbox.Delivery, settle *retrysafe.Write) (outbox.AckResult, error) {
			return box.Skip(ctx, outbox.SkipRequest{ID: d.ID, Tries: 1, Settle: settle})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(nil)
				box := s.Outbox()
				r := mustCreate(t, s, reservation("k"))
				tx := begin(t, s)
				wantErr(t, "Enqueue", tx.Enqueue(t.Context(), outbox.Message{Topic: "first"}), nil)
				wantErr(t, "Commit", tx.Commit(t.Context()), nil)
				held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
				wantErr(t, "Lease", err, nil)
				due, err := box.Due(t.Context(), held.Shards, 10)
				if err != nil || len(due) != 1 {
					t.Fatalf("Due = %v, %v", due, err)
				}
				_, err = box.Ack(t.Context(), []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckRetry, Tries: 1, After: time.Hour}})
				wantErr(t, "Ack", err, nil)

				tx = begin(t, s)
				kept := mustSwap(t, tx, moved(r.Update(), retrysafe.StateInProgress, time.Hour))
				wantErr(t, "Enqueue", tx.Enqueue(t.Context(), outbox.Message{Topic: "second"}), nil)
				settle := moved(kept.Update(), retrysafe.StateCompleted, time.Hour)
				got := make(chan outbox.AckResult, 1)
				go func() {
					ended, err := ack(t.Context(), box, due[0], &settle)
					if err != nil {
						t.Error(err)
					}
					got <- ended
				}()
				synctest.Wait() // for the transaction
				wantErr(t, "Commit", tx.Commit(t.Context()), nil)
				if ended := <-got; ended.Err != nil || ended.Record.State != retrysafe.StateCompleted {
					t.Errorf("the key is %v, %v", ended.Record.State, ended.Err)
				}
				if due, err := box.Due(t.Context(), held.Shards, 10); err != nil || len(due) != 1 || due[0].Topic != "second" {
					t.Errorf("Due = %v, %v", due, err)
				}
			})
		})
	}
}

// An acknowledgement that loses its shard while it waits for a transaction settles nothing,
// and is charged for nothing.
func TestAckThatIsFencedWhileItWaitsIsNotCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		box := s.Outbox()
		r := mustCreate(t, s, reservation("k"))
		tx := begin(t, s)
		wantErr(t, "Enqueue", tx.Enqueue(t.Context(), outbox.Message{Topic: "first"}), nil)
		wantErr(t, "Commit", tx.Commit(t.Context()), nil)
		held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Minute)
		wantErr(t, "Lease", err, nil)
		due, err := box.Due(t.Context(), held.Shards, 10)
		if err != nil || len(due) != 1 {
			t.Fatalf("Due = %v, %v", due, err)
		}
		records, bytes := s.Used()

		tx = begin(t, s)
		mustSwap(t, tx, moved(r.Update(), retrysafe.StateInProgress, time.Hour))
		settle := moved(r.Update(), retrysafe.StateCompleted, time.Hour)
		settle.Result = &retrysafe.Result{Status: 200, Body: make([]byte, 1<<20)}
		got := make(chan outbox.AckResult, 1)
		go func() {
			ended, err := box.Ack(t.Context(), []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckDelivered, Tries: 1, Settle: &settle}})
			if err != nil {
				t.Error(err)
			}
			got <- ended[0]
		}()
		synctest.Wait() // for the transaction
		time.Sleep(time.Hour)
		_, err = box.Lease(t.Context(), retrysafe.Owner{2}, time.Minute)
		wantErr(t, "Lease", err, nil)
		wantErr(t, "Rollback", tx.Rollback(t.Context()), nil)
		ended := <-got
		wantErr(t, "Ack", ended.Err, outbox.ErrFenced)
		if n, now := s.Used(); n != records || now != bytes {
			t.Errorf("%d records of %d bytes are charged, want %d of %d", n, now, records, bytes)
		}
	})
}
