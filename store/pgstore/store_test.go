package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(envPost); where != "" {
		os.Exit(runPost(where))
	}
	testservers.Main(m)
	// Every store is closed, also those whose connections broke. The driver may
	// take 15 s to give one up.
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := goleak.Find()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
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
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		url := testservers.Shared(t)
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
		}
	})
}
