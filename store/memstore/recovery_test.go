package memstore_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var schedules = flag.Uint64("schedules", 200, "how many simulated schedules of recovery to run")

func place(s *memstore.Store) recoverytest.Place {
	return recoverytest.Place{Store: s, Begin: func(ctx context.Context) (retrysafe.Tx, error) { return s.Begin(ctx) }}
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, place(memstore.New(nil)))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, place(memstore.New(nil)))
}

// The same races as schedules that can be repeated.
func TestW55_SimulatedRecoveryKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	for seed := range *schedules {
		err := recoverytest.Simulate(t.Context(), seed, func(now func() time.Time) recoverytest.Place {
			return place(memstore.New(&memstore.Options{Now: now}))
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
