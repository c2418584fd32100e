package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Steps may come while the store closes, such as an answer that an engine offers in
// the background. Each is taken or refused; nothing is half open.
func TestStepsMayComeWhileTheStoreCloses(t *testing.T) {
	t.Parallel()
	for range 20 {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
		must(t, err)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := range 20 {
					ref := retrysafe.Ref{Scope: "t", Key: string([]byte{'a' + byte(i), 'a' + byte(j)})}
					_, err := s.Create(context.Background(), retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
						Ref: ref, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1,
						Owner: retrysafe.Owner{1, byte(i), byte(j)}, Retain: time.Hour,
					}})
					if err != nil && !errors.Is(err, sqlitestore.ErrClosed) {
						t.Errorf("create %s: %v", ref.Key, err)
					}
				}
			})
		}
		must(t, s.Close())
		all.Wait()
		if _, err := s.Load(t.Context(), retrysafe.Ref{Scope: "t", Key: "aa"}); !errors.Is(err, sqlitestore.ErrClosed) {
			t.Errorf("load from a closed store: %v", err)
		}
	}
}

// Every step of a closed store is refused, also on a database of the caller's, which stays
// open, and none takes a connection again.
func TestEveryStepOfAClosedStoreIsRefused(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", patientDSN(filepath.Join(t.TempDir(), "keys.db")))
	must(t, err)
	defer db.Close()
	s, err := sqlitestore.New(t.Context(), db, nil)
	must(t, err)
	r, err := s.Create(t.Context(), fresh("k"))
	must(t, err)
	must(t, second(s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)))
	must(t, s.Close())
	ctx, box, shard := t.Context(), s.Outbox(), []outbox.Shard{{N: 1, Epoch: 1}}
	for step, err := range map[string]error{
		"Create":         second(s.Create(ctx, fresh("new"))),
		"Swap":           second(s.Swap(ctx, done(r, "late"))),
		"Load":           second(s.Load(ctx, r.Ref)),
		"List":           second(s.List(ctx, retrysafe.Query{})),
		"Count":          second(s.Count(ctx, r.Scope)),
		"Purge":          second(s.Purge(ctx, 10)),
		"Changes":        func() error { _, _, err := s.Changes(ctx, ""); return err }(),
		"Lease":          second(box.Lease(ctx, retrysafe.Owner{1}, time.Hour)),
		"Due":            second(box.Due(ctx, shard, 10)),
		"Ack":            second(box.Ack(ctx, []outbox.Ack{{ID: 1, Shard: shard[0], Kind: outbox.AckDelivered}})),
		"DeadLetters":    second(box.DeadLetters(ctx, 0, 10)),
		"Failing":        second(box.Failing(ctx, 0, 10)),
		"Dispose":        box.Dispose(ctx, outbox.Disposal{ID: 1}),
		"Depth":          second(box.Depth(ctx)),
		"Receipts":       second(box.Receipts(ctx, outbox.ReceiptQuery{Limit: 1})),
		"ForgetReceipts": box.ForgetReceipts(ctx, r.Ref),
	} {
		if !errors.Is(err, sqlitestore.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", step, err)
		}
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use", n)
	}
	if n := one[int](t, db, `SELECT count(*) FROM retrysafe_keys`); n != 1 {
		t.Errorf("%d keys are stored, want the one from before", n)
	}
}
