package memstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
