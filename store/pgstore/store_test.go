package pgstore_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(envPost); where != "" {
		os.Exit(runPost(where))
	}
	testservers.Main(m)
	leftover.None() // every store is closed, also those whose connections broke
}

func open(t testing.TB, url string, opts *pgstore.Options) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	holdContract(t, "")
}

// holdContract holds the store to the contract on a server of a version; empty is the
// usual one.
func holdContract(t *testing.T, version string) {
	t.Helper()
	next := inSchemasOf(t, testservers.SharedOn(t, version))
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		url, schema := next(t)
		opts := &pgstore.Options{Schema: schema}
		s := open(t, url, opts)
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, url, opts)},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, err := s.Pool().Begin(ctx)
				if err != nil {
					return nil, err
				}
				return s.Tx(tx), nil
			},
			Damage: func(ref retrysafe.Ref) error {
				table := pgx.Identifier{schema, "retrysafe_keys"}.Sanitize()
				_, err := s.Pool().Exec(t.Context(), `UPDATE `+table+` SET head = set_bit(head, 100, 1 - get_bit(head, 100)) WHERE id = $1`, pgstore.ID(ref))
				return err
			},
		}
	})
}
