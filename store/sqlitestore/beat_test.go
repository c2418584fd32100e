package sqlitestore_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A heartbeat that comes due while the operation's own transaction is open waits for
// SQLite's write lock, which that transaction has. The transaction does not wait for
// the heartbeat in turn: all writers would stand still until the store's time is up.
func TestHeartbeatDoesNotHoldUpItsOwnTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	const limit = 30 * time.Second
	e, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: limit, Policy: retrysafe.Policy{
		Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun, Lease: 90 * time.Millisecond,
	}})
	must(t, err)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "t", Key: "k"}, Operation: "pay"}
	var took time.Duration
	out, err := e.Do(t.Context(), call, func(_ context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		r, ctx := retrysafe.Result{Status: 201}, t.Context() // the operation's own ends when its lease may have
		tx, err := s.DB().BeginTx(ctx, nil)                  // it has the write lock
		if err != nil {
			return r, err
		}
		time.Sleep(150 * time.Millisecond) // whether a beat is under way by now or not, the transaction completes
		began := time.Now()
		if err := x.CompleteTx(ctx, s.Tx(tx), r); err != nil {
			return r, err
		}
		took = time.Since(began)
		return r, tx.Commit()
	})
	if err != nil || out.Status != 201 || took > limit/2 {
		t.Errorf("completed after %v: %+v, %v", took, out, err)
	}
}
