package e2e_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// pgEffects returns how many effects a database has.
func pgEffects(t *testing.T, db *pgx.Conn) (n int) {
	t.Helper()
	must(t, db.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&n))
	return n
}

// On PostgreSQL a handler runs in a transaction of pgx, and effect and answer are one
// commit: many calls at once have one effect, every retry gets its answer, another call
// under the key is refused, and an error rolls the effect back.
func TestOnPostgreSQLEffectAndAnswerAreOneCommit(t *testing.T) {
	t.Parallel()
	for _, tr := range transports[:2] { // one server of each kind
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			url := testservers.Shared(t)
			db, err := pgx.Connect(t.Context(), url)
			must(t, err)
			t.Cleanup(func() { db.Close(context.WithoutCancel(t.Context())) })
			_, err = db.Exec(t.Context(), `CREATE TABLE effects (by TEXT UNIQUE)`)
			must(t, err)
			store, err := pgstore.Open(t.Context(), url, nil)
			must(t, err)
			t.Cleanup(func() { store.Close() })

			s, c := tr.start(t, func(c *config) { c.store, c.Tx = store, rpckey.InTx(store) },
				withHandler(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
					tx, err := rpckey.Tx[pgx.Tx](ctx)
					if err != nil {
						return nil, err
					}
					by := rand.Text() // another one for each attempt
					if _, err := tx.Exec(ctx, `INSERT INTO effects (by) VALUES ($1)`, by); err != nil {
						return nil, err
					}
					if o.amount < 0 {
						return nil, &fault{code: codes.FailedPrecondition, text: "no money"}
					}
					return &payv1.ChargeResponse{ChargeId: "ch_" + by, Amount: o.amount}, nil
				}))
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() {
					for {
						o := c.call(t.Context(), pay(key, 1))
						if o.code == codes.OK {
							return
						}
						if code := o.info().GetMetadata()["code"]; code != "in-flight" && code != "store-unavailable" { // the machine may be busy
							t.Errorf("got %s %q %v", o.code, o.text, o.details)
							return
						}
					}
				})
			}
			all.Wait()
			first := c.call(t.Context(), pay(key, 1))
			c.call(t.Context(), pay(key, 1)).same(t, first)
			c.call(t.Context(), pay(key, 2)).refused(t, codes.FailedPrecondition, "key-reused")
			s.ranTimes(t, 1)

			refused := c.call(t.Context(), pay(other, -1))
			if refused.code != codes.FailedPrecondition || refused.text != "no money" || refused.replayed() {
				t.Errorf("got %s %q", refused.code, refused.text)
			}
			c.call(t.Context(), pay(other, -1)).same(t, refused)
			s.ranTimes(t, 2)
			if n := pgEffects(t, db); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
			if r, err := store.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: other}); err != nil || r.State != retrysafe.StateCompleted {
				t.Errorf("the error is stored as %s, %v", r.State, err)
			}
		})
	}
}
