package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// Seed 003 lets the business table reference the key, ON DELETE SET NULL.
func TestTableOfTheCallersMayReferenceAKey(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	if _, err := s.Pool().Exec(t.Context(), `CREATE TABLE rides (id serial PRIMARY KEY,
		key_id uuid REFERENCES retrysafe_keys (id) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED)`); err != nil {
		t.Fatal(err)
	}
	e, err := retrysafe.New(s, unhurriedBy(retrysafe.Policy{Effects: retrysafe.EffectsInTx, Retention: time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	ref := retrysafe.Ref{Scope: "tenant", Key: "a ride"}
	if _, err := retrysafe.DoTx(t.Context(), e, s, retrysafe.Call{Ref: ref}, func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
		_, err := tx.Exec(ctx, `INSERT INTO rides (key_id) VALUES ($1)`, pgstore.ID(ref))
		return retrysafe.Result{Status: 201}, err
	}); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; {
		if n, err = s.Purge(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	var rides, orphaned int
	if err := s.Pool().QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE key_id IS NULL) FROM rides`).Scan(&rides, &orphaned); err != nil {
		t.Fatal(err)
	}
	if rides != 1 || orphaned != 1 {
		t.Errorf("%d rides, %d of them without a key; want one that outlived its key", rides, orphaned)
	}
}
