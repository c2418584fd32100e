package pgstore_test

import (
	"context"
	"os"
	"testing"

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
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		url := testservers.SharedOn(t, version)
		s := open(t, url, nil)
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, url, nil)},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, err := s.Pool().Begin(ctx)
				if err != nil {
					return nil, err
				}
				return s.Tx(tx), nil
			},
			Damage: func(ref retrysafe.Ref) error {
				_, err := s.Pool().Exec(t.Context(), `UPDATE retrysafe_keys SET head = set_bit(head, 100, 1 - get_bit(head, 100)) WHERE id = $1`, pgstore.ID(ref))
				return err
			},
		}
	})
}
