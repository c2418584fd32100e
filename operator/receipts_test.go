package operator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// boxOf returns the outbox of a store, and enqueues messages there.
func boxOf(t *testing.T, s retrysafe.Store, messages ...outbox.Message) outbox.Store {
	t.Helper()
	var tx retrysafe.Tx
	var box outbox.Store
	var err error
	switch s := s.(type) {
	case *memstore.Store:
		box = s.Outbox()
		tx, err = s.Begin(t.Context())
	case *sqlitestore.Store:
		box = s.Outbox()
		tx, _, err = s.BeginTx(t.Context())
	case *pgstore.Store:
		box = s.Outbox()
		tx, _, err = s.BeginTx(t.Context())
	default:
		t.Fatalf("%T has no outbox", s)
	}
	must(t, err)
	must(t, tx.(outbox.Enqueuer).Enqueue(t.Context(), messages...))
	must(t, tx.Commit(t.Context()))
	return box
}

// receiptOf leaves the receipt of a message that settled the key.
func receiptOf(t *testing.T, s retrysafe.Store, r *retrysafe.Record) outbox.ReceiptKeeper {
	t.Helper()
	box := boxOf(t, s, outbox.Message{Topic: "charges", Key: "downstream", Payload: []byte("p")})
	worker := owner()
	held, err := box.Lease(t.Context(), worker, time.Minute)
	must(t, err)
	due, err := box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	for i := range due {
		d := &due[i]
		settles := *r
		d.Settles = &settles
		ended, err := box.Ack(t.Context(), []outbox.Ack{{
			ID: d.ID, Shard: d.Shard, Kind: outbox.AckDelivered, Tries: 1, ProviderRef: "ref of " + secret, Keep: time.Hour, Message: &d.Message,
		}})
		must(t, errors.Join(err, ended[0].Err))
	}
	must(t, second(box.Lease(t.Context(), worker, 0)))
	return box.(outbox.ReceiptKeeper)
}

func receiptsOf(t *testing.T, k outbox.ReceiptKeeper, ref retrysafe.Ref) int {
	t.Helper()
	list, err := k.Receipts(t.Context(), outbox.ReceiptQuery{Settled: ref, Limit: 10})
	must(t, err)
	return len(list)
}

// What is erased or forgotten is not left in the receipts of the messages that settled
// the key; the receipts of other keys stay.
func TestW62_ErasedKeysLeaveNoReceipts(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		kept := put(t, s, in(retrysafe.StateCompleted, "kept"))
		box := receiptOf(t, s, &kept)
		d := newDesk(t, s, &operator.Options{Receipts: box})
		for key, verb := range map[string]func(context.Context, operator.Action) (operator.Entry, error){"erased": d.Erase, "forgotten": d.Forget} {
			r := put(t, s, in(retrysafe.StateCompleted, key))
			receiptOf(t, s, &r)
			if n := receiptsOf(t, box, r.Ref); n != 1 {
				t.Fatalf("%s: %d receipts", key, n)
			}
			stale := seen(r)
			stale.Revision++
			if _, err := verb(t.Context(), stale); !errors.Is(err, operator.ErrStale) {
				t.Errorf("%s: a refused action: %v", key, err)
			}
			if n := receiptsOf(t, box, r.Ref); n != 1 {
				t.Errorf("%s: a refused action has deleted a receipt", key)
			}
			_, err := verb(t.Context(), seen(r))
			must(t, err)
			if n := receiptsOf(t, box, r.Ref); n != 0 {
				t.Errorf("%s: %d receipts are left", key, n)
			}
		}
		if n := receiptsOf(t, box, kept.Ref); n != 1 {
			t.Errorf("another key has %d receipts left", n)
		}
	})
}

// flakyReceipts fails as often as it is told.
type flakyReceipts struct {
	outbox.ReceiptKeeper
	fails int
}

func (f *flakyReceipts) ForgetReceipts(ctx context.Context, ref retrysafe.Ref) error {
	if f.fails > 0 {
		f.fails--
		return errors.New("the store is gone")
	}
	return f.ReceiptKeeper.ForgetReceipts(ctx, ref)
}

// An action that could not delete the receipts says so, and deletes them when it is
// repeated under its ID.
func TestEraseThatFailsAtTheReceiptsIsRepeated(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		r := put(t, s, in(retrysafe.StateCompleted, "key"))
		box := &flakyReceipts{receiptOf(t, s, &r), 1}
		d := newDesk(t, s, &operator.Options{Receipts: box})
		a := seen(r)
		a.ID = "request-42"
		if _, err := d.Erase(t.Context(), a); err == nil || receiptsOf(t, box, r.Ref) != 1 {
			t.Errorf("Erase = %v", err)
		}
		_, err := d.Erase(t.Context(), a)
		must(t, err)
		if n := receiptsOf(t, box, r.Ref); n != 0 {
			t.Errorf("%d receipts are left", n)
		}
	})
}
