package mysqlstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// Every step of a closed store is refused, also on a pool of the caller's, which stays open,
// and none has a connection any more.
func TestEveryStepOfAClosedStoreIsRefused(t *testing.T) {
	t.Parallel()
	db := connect(t, plain(testservers.SharedMariaDB(t)))
	s, err := mysqlstore.New(t.Context(), db, nil)
	must(t, err)
	r, err := s.Create(t.Context(), fresh("k"))
	must(t, err)
	must(t, s.Close())
	ctx, box, shard := t.Context(), s.Outbox(), []outbox.Shard{{N: 1, Epoch: 1}}
	for step, err := range map[string]error{
		"Create":      second(s.Create(ctx, fresh("new"))),
		"Swap":        second(s.Swap(ctx, done(r, "late"))),
		"Load":        second(s.Load(ctx, r.Ref)),
		"List":        second(s.List(ctx, retrysafe.Query{})),
		"Count":       second(s.Count(ctx, r.Scope)),
		"Purge":       second(s.Purge(ctx, 10)),
		"Changes":     func() error { _, _, err := s.Changes(ctx, ""); return err }(),
		"BeginTx":     func() error { _, _, err := s.BeginTx(ctx); return err }(),
		"Lease":       second(box.Lease(ctx, retrysafe.Owner{1}, time.Hour)),
		"Due":         second(box.Due(ctx, shard, 10)),
		"Ack":         second(box.Ack(ctx, []outbox.Ack{{ID: 1, Shard: shard[0], Kind: outbox.AckDelivered}})),
		"DeadLetters": second(box.DeadLetters(ctx, 0, 10)),
		"Failing":     second(box.Failing(ctx, 0, 10)),
		"Dispose":     box.Dispose(ctx, outbox.Disposal{ID: 1}),
		"Skip":        second(box.Skip(ctx, outbox.SkipRequest{ID: 1})),
		"Depth":       second(box.Depth(ctx)),
	} {
		if !errors.Is(err, mysqlstore.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", step, err)
		}
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use", n)
	}
}
