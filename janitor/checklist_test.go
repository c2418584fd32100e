package janitor_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// "Stale-processing sweeper resolves stuck keys within the lock timeout window": with
// the defaults, an owner that fell silent is found out within its lease and one rest
// of the sweeper, give or take a quarter, and not before its lease is over.
func TestSeed001_StuckKeyIsResolvedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		must(t, second(w.zombie.Begin(t.Context(), call())))
		w.fault.Plan(failAll)
		lease := w.Policy().Lease
		runFor(t, lease-time.Millisecond, janitor.NewSweeper(w.mem, nil))
		w.is(t, retrysafe.StateInProgress)
		s := janitor.NewSweeper(w.mem, nil)
		runFor(t, time.Millisecond+s.Schedule().Every*5/4, s)
		w.is(t, retrysafe.StateUnknown)
	})
}

// "Reaper job actually runs and respects retention window", with the defaults: an
// answer is replayed to its last moment, and then the record goes by itself.
func TestSeed003_ReaperRunsAndRespectsRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{})
		must(t, w.begins(t).Complete(t.Context(), answer("kept")))
		retention := w.Policy().Retention
		runFor(t, retention-time.Millisecond, reaper(w.mem, janitor.ReaperOptions{}))
		w.replays(t, 201, "kept")
		r := reaper(w.mem, janitor.ReaperOptions{})
		runFor(t, time.Millisecond+r.Schedule().Every*5/4, r)
		if _, err := w.mem.Load(t.Context(), call().Ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Load = %v, want that nothing is left", err)
		}
	})
}

func second[A, B any](_ A, _ B, err error) error { return err }
