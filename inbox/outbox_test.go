package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The receiver has applied a message, but its word is lost, or it dies before it has
// committed. The worker sends the same again, and what is sent again is applied once.
func TestW64_WhatIsSentAgainIsAppliedOnce(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	ledger := p.ledger(t)
	const messages = 100
	store := memstore.New(nil)
	tx, err := store.Begin(t.Context())
	must(t, err)
	for i := range messages {
		must(t, tx.Enqueue(t.Context(), outbox.Message{Topic: "payments", Group: fmt.Sprint(i % 7), Payload: fmt.Append(nil, i)}))
	}
	must(t, tx.Commit(t.Context()))

	died, lost := errors.New("the receiver died"), errors.New("its word was lost")
	sink := outbox.SinkFunc(func(ctx context.Context, d *outbox.Delivery) (r outbox.Receipt) {
		fate := rand.IntN(4)
		_, r.Err = ledger.Once(ctx, inbox.Message{Scope: "shop", Key: d.Key, Payload: d.Payload}, func(ctx context.Context, tx pgx.Tx) error {
			if err := p.exec(ctx, tx, fmt.Sprintf(`INSERT INTO bookings VALUES ('%s')`, d.Payload)); err != nil {
				return err
			}
			if fate == 0 {
				return died
			}
			return nil
		})
		if r.Err == nil && fate == 1 {
			r.Err = lost
		}
		return r
	})
	worker, err := outbox.NewWorker(store.Outbox(), sink, &outbox.Options{
		MaxTries: 1000, Backoff: outbox.Backoff{First: time.Millisecond, Longest: time.Millisecond},
		Poll: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "all are delivered", func() bool { return worker.Stats().Delivered == messages })
	stop()
	done.Wait()
	if all, distinct := p.count(t, "bookings"), p.count(t, "(SELECT DISTINCT what FROM bookings) AS each"); all != messages || distinct != messages {
		t.Errorf("%d effects, of %d messages; want %d of each", all, distinct, messages)
	}
	if worker.Stats().Again == 0 {
		t.Error("nothing was sent again, so nothing was tested")
	}
}
