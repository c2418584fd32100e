package recoverytest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func inMemory(now func() time.Time) Place {
	m := memstore.New(&memstore.Options{Now: now})
	return Place{Store: m, Begin: func(ctx context.Context) (retrysafe.Tx, error) { return m.Begin(ctx) }}
}

// bugs are planted in the scene, and each is noticed by the invariant that is named.
var bugs = map[string]struct {
	plant   func(*scene)
	notices string
	rare    bool
}{
	"sweeper swaps without compare": {func(s *scene) { s.sweepOne = overwrite }, "W55", false},
	"reaper ignores the state":      {func(s *scene) { s.purge = deleteWhatIsDue }, "W54", false},
	"reaper ignores the deadline":   {func(s *scene) { s.purge = deleteWhatIsFinal }, "W54", false},
	"absence is taken for a proof":  {func(s *scene) { s.absent = attested }, "S1", true},
	"swap compares nothing":         {func(s *scene) { s.place.Store = uncompared{s.place.Store} }, "W55", false},
}

// In goroutines a bug may take a few tries to show, and a rare one too many.
func TestPlantedBugsAreFoundInGoroutines(t *testing.T) {
	t.Parallel()
	for name, bug := range bugs {
		if bug.rare {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := range uint64(50) {
				s := newScene(inMemory(nil), &wall{}, try, lease, sweepers)
				bug.plant(s)
				s.perform(t.Context())
				if err := s.verify(t.Context()); err != nil && strings.Contains(err.Error(), bug.notices) {
					return
				}
			}
			t.Error("no rule reported the planted bug")
		})
	}
}

// In a simulation it is found at the same seed each time.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for name, bug := range bugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found []uint64
			for range 2 {
				for seed := range uint64(500) {
					if err := simulate(t.Context(), seed, inMemory, bug.plant); err != nil && strings.Contains(err.Error(), bug.notices) {
						found = append(found, seed)
						t.Logf("seed %d: %v", seed, err)
						break
					}
				}
			}
			if len(found) != 2 || found[0] != found[1] {
				t.Errorf("found at seeds %v, want the same one twice", found)
			}
		})
	}
}

// overwrite is a sweeper that makes sure that its swap succeeds.
func overwrite(ctx context.Context, s retrysafe.Store, found retrysafe.Record, next retrysafe.Write) error {
	stored, err := s.Load(ctx, found.Ref)
	if err != nil {
		return err
	}
	next.Expect = stored.Fence()
	_, err = s.Swap(ctx, next)
	return err
}

// deleteWhatIsDue is a reaper that deletes by age alone.
func deleteWhatIsDue(ctx context.Context, s retrysafe.Store) (int, error) {
	return deleteAll(ctx, s, retrysafe.Query{Due: true})
}

// deleteWhatIsFinal is a reaper that does not look at the time.
func deleteWhatIsFinal(ctx context.Context, s retrysafe.Store) (int, error) {
	return deleteAll(ctx, s, retrysafe.Query{States: []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable}})
}

// deleteAll makes the records purgeable behind the witness's back.
func deleteAll(ctx context.Context, s retrysafe.Store, q retrysafe.Query) (int, error) {
	below := s.(watched).Store
	found, err := below.List(ctx, q)
	for _, r := range found {
		w := r.Update()
		w.State, w.Result = retrysafe.StateExpired, nil
		if r.Scope != books {
			_, _ = below.Swap(ctx, w)
		}
	}
	if err != nil {
		return 0, err
	}
	return below.Purge(ctx, 1000)
}

// attested vouches for an outcome that cannot be known.
func attested(*retrysafe.Record) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested}
}

// uncompared is a store that takes every swap.
type uncompared struct{ retrysafe.Store }

func (u uncompared) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	stored, err := u.Load(ctx, w.Ref)
	if err != nil {
		return stored, err
	}
	w.Expect = stored.Fence()
	return u.Store.Swap(ctx, w)
}
