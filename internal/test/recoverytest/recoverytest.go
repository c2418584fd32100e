// Package recoverytest runs all actors that change a record concurrently, over any
// store: callers that retry, owners that crash or resume too late, workers, sweepers
// with stale copies, reapers and reconcilers. Then it checks the history of each key.
//
// A store's test needs two functions:
//
//	func TestW54_ReapersRaceWithRetries(t *testing.T) {
//		recoverytest.RaceReapers(t, place(t))
//	}
//
//	func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
//		recoverytest.RaceSweepers(t, place(t))
//	}
//
// These run in goroutines, by the store's own clock. [Simulate] runs the same actors
// one at a time, in an order that a seed decides, by a clock that the schedule moves.
package recoverytest

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Place is the store under test.
type Place struct {
	Store retrysafe.Store
	// Peers are further handles on the same data, as other nodes have them.
	Peers []retrysafe.Store
	// Begin opens a transaction of a store that shares one with its callers. If it is
	// nil, there are no operations in transactions.
	Begin func(context.Context) (retrysafe.Tx, error)
	// Skew is by how much the time of a Create may be before the moment at which it is
	// applied, in a store that has no clock of its own.
	Skew time.Duration
}

var seed = flag.Uint64("recovery-seed", 0, "the seed of the recovery races; 0 draws one")

// lease is that of an attempt in real time. It is short, so that leases lapse all the
// time, also those of owners that are only slow: that must do no harm either.
const lease = 40 * time.Millisecond

// RaceReapers runs all actors, with answers that expire almost at once and many
// reapers.
func RaceReapers(t *testing.T, p Place) {
	t.Helper()
	race(t, p, reapers)
}

// RaceSweepers runs all actors, with many sweepers that act on stale copies.
func RaceSweepers(t *testing.T, p Place) {
	t.Helper()
	race(t, p, sweepers)
}

var (
	reapers  = cast{keys: 3, customers: 8, visits: 25, workers: 2, sweepers: 2, reapers: 4, reconcilers: 2, retention: lease}
	sweepers = cast{keys: 8, customers: 8, visits: 25, workers: 2, sweepers: 6, reapers: 1, reconcilers: 2, retention: 6 * lease}
)

func race(t *testing.T, p Place, c cast) {
	t.Helper()
	chosen := *seed
	for chosen == 0 {
		chosen = rand.Uint64()
	}
	s := newScene(p, &wall{}, chosen, lease, c)
	s.perform(t.Context())
	if broken := s.verify(t.Context()); broken != nil {
		t.Errorf("seed %d: %v", chosen, broken)
	}
	t.Log(s.summary())
}

// Simulate runs one schedule, which the seed decides, over the place that open returns.
// Its clock must be now. It returns the violations, if any.
func Simulate(ctx context.Context, seed uint64, open func(now func() time.Time) Place) error {
	return simulate(ctx, seed, open, func(*scene) {})
}

// simulate is Simulate with a changed scene.
func simulate(ctx context.Context, seed uint64, open func(now func() time.Time) Place, change func(*scene)) error {
	w := newWorld(seed)
	defer w.finish()
	const lease = 30 * time.Second
	c := cast{keys: 1, customers: 4, visits: 6, workers: 1, sweepers: 2, reapers: 1, reconcilers: 1, retention: lease}
	if seed%2 == 0 {
		c.retention = 6 * lease
	}
	s := newScene(open(w.Now), w, seed, lease, c)
	change(s)
	s.perform(ctx)
	return s.verify(ctx)
}
