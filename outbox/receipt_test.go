package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// charged is a receiver that calls each effect after its message.
var charged = outbox.SinkFunc(func(_ context.Context, d *outbox.Delivery) outbox.Receipt {
	return outbox.Receipt{ProviderRef: "ch_" + string(d.Payload)}
})

// receiptsIn returns the receivers' names in the receipts of an outbox.
func receiptsIn(t *testing.T, k outbox.ReceiptKeeper, q outbox.ReceiptQuery) string {
	t.Helper()
	q.Limit = 100
	list, err := k.Receipts(t.Context(), q)
	must(t, err)
	var refs []string
	for i := range list {
		refs = append(refs, list[i].ProviderRef)
	}
	return strings.Join(refs, " ")
}

// A worker keeps receipts for as long as it was told, and none by default. The reaper
// deletes them when that time is over, whether it leaves tombstones of keys or not.
func TestWorkerKeepsReceiptsForTheirRetention(t *testing.T) {
	t.Parallel()
	for name, tombstone := range map[string]time.Duration{"without tombstones": 0, "with tombstones": 48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(nil)
				reaper := janitor.NewReaper(s, &janitor.ReaperOptions{Tombstone: tombstone})
				deliver := func(payload string, opts *outbox.Options) {
					t.Helper()
					enqueue(t, s, message("", payload))
					w, err := outbox.NewWorker(s.Outbox(), charged, opts)
					must(t, err)
					if n, err := w.RunOnce(t.Context()); n != 1 || err != nil {
						t.Fatalf("RunOnce = %d, %v", n, err)
					}
					must(t, w.Release(t.Context()))
				}
				deliver("1", nil)
				deliver("2", &outbox.Options{KeepReceipts: 30 * 24 * time.Hour})
				deliver("3", &outbox.Options{KeepReceipts: 24 * time.Hour})
				if got := receiptsIn(t, s.Outbox(), outbox.ReceiptQuery{}); got != "ch_2 ch_3" {
					t.Errorf("the receipts are %q", got)
				}
				if n, err := reaper.RunOnce(t.Context()); n != 0 || err != nil {
					t.Errorf("the reaper has deleted %d receipts that have not expired: %v", n, err)
				}
				time.Sleep(25 * time.Hour)
				if got := receiptsIn(t, s.Outbox(), outbox.ReceiptQuery{}); got != "ch_2" {
					t.Errorf("a day later the receipts are %q", got)
				}
				if n, err := reaper.RunOnce(t.Context()); n != 1 || err != nil {
					t.Errorf("RunOnce of the reaper = %d, %v", n, err)
				}
				if got := receiptsIn(t, s.Outbox(), outbox.ReceiptQuery{ProviderRef: "ch_2"}); got != "ch_2" {
					t.Errorf("the reaper has left %q", got)
				}
			})
		})
	}
}

// The receipt of a message that settled a key leads from the provider's name for the
// effect to the key.
func TestReceiptLeadsFromTheProvidersNameToTheKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "keys.db"), nil)
	must(t, err)
	defer store.Close()
	e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, StoreTimeout: time.Minute})
	must(t, err)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "order-42"}, Operation: "POST /charges"}
	_, err = e.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, err := store.DB().BeginTx(ctx, nil)
		if err != nil {
			return retrysafe.Result{}, err
		}
		return retrysafe.Result{}, errors.Join(handTo(ctx, store, x, tx), tx.Commit())
	})
	if !errors.Is(err, retrysafe.ErrAccepted) {
		t.Fatalf("Do = %v", err)
	}
	w, err := outbox.NewWorker(store.Outbox(), charged, &outbox.Options{KeepReceipts: time.Hour})
	must(t, err)
	if n, err := w.RunOnce(ctx); n != 1 || err != nil {
		t.Fatalf("RunOnce = %d, %v", n, err)
	}
	list, err := store.Outbox().Receipts(ctx, outbox.ReceiptQuery{ProviderRef: "ch_charge", Limit: 2})
	must(t, err)
	if len(list) != 1 || list[0].Settled != call.Ref || list[0].Topic != "charges" || list[0].Key == "" {
		t.Errorf("the receipts are %+v", list)
	}
	if got := receiptsIn(t, store.Outbox(), outbox.ReceiptQuery{Settled: call.Ref}); got != "ch_charge" {
		t.Errorf("the receipts of the key are %q", got)
	}
}

func handTo(ctx context.Context, store *sqlitestore.Store, x *retrysafe.Execution, tx *sql.Tx) error {
	joined := store.Tx(tx)
	key, err := x.HandOver(ctx, joined, 21*time.Hour)
	if err != nil {
		return err
	}
	return joined.Enqueue(ctx, outbox.Message{Topic: "charges", Key: x.DownstreamKey("charge"), Payload: []byte("charge"), Settles: &key})
}

// plainBox is an outbox that keeps no receipts.
type plainBox struct{ outbox.Store }

// brokenBox is an outbox whose receipts cannot be kept.
type brokenBox struct{ outbox.Store }

var errNoTable = errors.New("the table of receipts is not there")

func (brokenBox) Receipts(context.Context, outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
	return nil, errNoTable
}
func (brokenBox) ForgetReceipts(context.Context, retrysafe.Ref) error { return nil }

// A worker that cannot keep what it is told to keep is not made.
func TestReceiptsThatCannotBeKeptAreAnError(t *testing.T) {
	t.Parallel()
	box := memstore.New(nil).Outbox()
	for _, c := range []struct {
		store outbox.Store
		keep  time.Duration
		says  string
	}{
		{box, time.Hour, ""},
		{plainBox{box}, 0, ""},
		{plainBox{box}, time.Hour, "keeps no receipts; leave it at zero"},
		{brokenBox{box}, time.Hour, errNoTable.Error()},
		{box, -time.Hour, "an option is negative"},
	} {
		_, err := outbox.NewWorker(c.store, charged, &outbox.Options{KeepReceipts: c.keep})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("KeepReceipts %v on a %T: %v", c.keep, c.store, err)
		}
	}
}
