package e2e_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// On PostgreSQL too, an internal error is rolled back and is no answer, and the retry's
// answer is replayed whole: message, headers and trailers.
func TestInternalErrorIsNoAnswerAndReplaysAreWholeOnPostgreSQL(t *testing.T) {
	t.Parallel()
	store, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	_, err = store.Pool().Exec(t.Context(), `CREATE TABLE effects (by TEXT)`)
	must(t, err)
	t.Run("transport", func(t *testing.T) {
		for i, tr := range transports {
			t.Run(tr.name, func(t *testing.T) {
				t.Parallel()
				key := key[:len(key)-1] + string(rune('a'+i))
				s, c := tr.start(t, func(c *config) { c.store, c.Tx = store, rpckey.InTx(store) })
				var failed atomic.Bool
				s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
					tx, err := rpckey.Tx[pgx.Tx](ctx)
					if err != nil {
						return nil, err
					}
					if _, err := tx.Exec(ctx, `INSERT INTO effects (by) VALUES ($1)`, key); err != nil {
						return nil, err
					}
					if failed.CompareAndSwap(false, true) {
						return nil, &fault{code: codes.Internal, text: "a defect"}
					}
					return s.charged(ctx, o)
				})
				effects := func() (n int) {
					t.Helper()
					must(t, store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE by = $1`, key).Scan(&n))
					return n
				}
				if o := c.call(t.Context(), pay(key, 1)); o.code != codes.Internal || effects() != 0 {
					t.Fatalf("the first call gets %s %q, and has %d effects", o.code, o.text, effects())
				}
				first := c.call(t.Context(), pay(key, 1))
				first.is(t, 2, false)
				for range 2 {
					again := c.call(t.Context(), pay(key, 1))
					again.same(t, first)
					if !again.replayed() {
						t.Error("the replay is not marked")
					}
				}
				s.ranTimes(t, 2)
				if n := effects(); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
			})
		}
	})
}
