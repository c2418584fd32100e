package sealed_test

import (
	"context"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func place(t *testing.T) recoverytest.Place {
	t.Helper()
	below, keys := memstore.New(nil), ring(t, 1, 1)
	return recoverytest.Place{
		Store: over(t, below, keys),
		Begin: func(ctx context.Context) (retrysafe.Tx, error) {
			tx, err := below.Begin(ctx)
			return keys.Tx(tx), err
		},
	}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, place(t))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, place(t))
}
