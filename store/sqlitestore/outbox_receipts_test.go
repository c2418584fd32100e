package sqlitestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Where another program migrates, and the table is not there yet, keys and messages work as
// before; only a worker that is to keep receipts is refused, with the remedy.
func TestReceiptsWithoutTheTable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	exec(t, open(t, path).DB(), `DROP TABLE retrysafe_receipts`)
	s, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{SkipMigrations: true})
	must(t, err)
	defer s.Close()
	put(t, s, "k")
	must(t, second(s.Purge(t.Context(), 10)))
	must(t, s.Outbox().ForgetReceipts(t.Context(), keyed("k").Ref))
	if _, err := s.Outbox().Receipts(t.Context(), outbox.ReceiptQuery{Limit: 1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Receipts = %v", err)
	}
	sink := outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt { return outbox.Receipt{} })
	if _, err := outbox.NewWorker(s.Outbox(), sink, &outbox.Options{KeepReceipts: time.Hour}); err == nil || !strings.Contains(err.Error(), "run the migrations") {
		t.Errorf("NewWorker = %v", err)
	}
	// A message that was delivered has ended, with or without its receipt.
	m := outbox.Message{Topic: "t"}
	enqueue(t, s, m)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	due, err := s.Outbox().Due(t.Context(), held.Shards, 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("due are %d, %v", len(due), err)
	}
	ended, err := s.Outbox().Ack(t.Context(), []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckDelivered, Keep: time.Hour, Message: &m}})
	if err != nil || ended[0].Err != nil {
		t.Errorf("Ack = %+v, %v", ended, err)
	}
}
