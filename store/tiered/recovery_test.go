package tiered_test

import (
	"context"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// place has nodes with a cache each.
func place(now func() time.Time) recoverytest.Place {
	below := memstore.New(&memstore.Options{Now: now})
	opts := &tiered.Options{Now: now}
	return recoverytest.Place{
		Store: tiered.New(below, opts),
		Peers: []retrysafe.Store{tiered.New(below, opts), tiered.New(below, opts)},
		Begin: func(ctx context.Context) (retrysafe.Tx, error) { return below.Begin(ctx) },
	}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, place(nil))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, place(nil))
}

func TestW55_SimulatedRecoveryKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		if err := recoverytest.Simulate(t.Context(), seed, place); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
