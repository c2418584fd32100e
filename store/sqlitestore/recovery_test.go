package sqlitestore_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
)

// recoveryPlace has two handles on one file, as two processes would have.
func recoveryPlace(t *testing.T) recoverytest.Place {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := patient(t, path)
	return recoverytest.Place{
		Store: s,
		Peers: []retrysafe.Store{patient(t, path)},
		Begin: func(ctx context.Context) (retrysafe.Tx, error) {
			tx, err := s.DB().BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			return s.Tx(tx), nil
		},
	}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, recoveryPlace(t))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, recoveryPlace(t))
}
