package sim_test

import (
	"flag"
	"log/slog"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sim"
)

var schedules = flag.Int("schedules", 2000, "how many simulated schedules to run")

// The engine blocks only in its store, its clock and its randomness. So one goroutine
// can run any number of callers, as coroutines, in an order that a seed decides: see
// package sim, of which this runs a few worlds.
func TestSimulatedSchedulesKeepTheInvariants(t *testing.T) {
	t.Parallel()
	for _, c := range sim.Checks() {
		r := prove.Run(t.Context(), &c, prove.Env{Seed: 1, N: *schedules, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if r.Verdict != prove.Passed {
			t.Errorf("%s %s: %s", c.Name, r.Verdict, r.Why)
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d breaks %s of %q: %s", v.Seed, v.Invariant, v.Key, v.What)
			for _, line := range v.Trace {
				t.Log(line)
			}
		}
		for _, f := range r.Figures {
			t.Logf("%s: %.6g %s", f.Name, f.Value, f.Unit)
		}
	}
}
