package pgstore_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// recoveryPlace has two handles on one table, as two nodes have.
func recoveryPlace(t *testing.T, url string) recoverytest.Place {
	t.Helper()
	s := open(t, url, nil)
	return recoverytest.Place{
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
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, recoveryPlace(t, testservers.Shared(t)))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, recoveryPlace(t, testservers.Shared(t)))
}
