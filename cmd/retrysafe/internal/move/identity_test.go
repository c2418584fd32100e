package move_test

import (
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/deployment"
)

// identity is the record in which a store says which deployment it belongs to.
func identity(id string) retrysafe.Write {
	return retrysafe.Write{Term: 100 * 365 * 24 * time.Hour, Record: retrysafe.Record{
		Ref: deployment.Ref(), State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
		Result: &retrysafe.Result{Status: 200, Body: []byte(id)}, Retain: 100 * 365 * 24 * time.Hour,
	}}
}

// The identity of a deployment moves with its keys. A gateway that was started on the
// destination beforehand has given it an identity of its own and probed it, which does not
// make it a store with records.
func TestIdentityMovesAlong(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		for _, has := range []bool{true, false} {
			from, to := served(t, newSource(t)), served(t, newDestination(t))
			stock(t, from)
			want := "the destination's"
			if has {
				want = "the source's"
				_, err := from.Create(t.Context(), identity(want))
				must(t, err)
			}
			_, err := to.Create(t.Context(), identity("the destination's"))
			must(t, err)
			probe := identity("")
			probe.Ref = deployment.Probe()
			for _, store := range []retrysafe.Store{from, to} { // a gateway of each has looked at its health
				_, err := store.Create(t.Context(), probe)
				must(t, err)
			}
			for _, dry := range []bool{true, false} {
				_, err := move.Records(t.Context(), from, to, &move.Options{DryRun: dry})
				must(t, err)
			}
			_, err = to.Purge(t.Context(), 100)
			must(t, err)
			r, err := to.Load(t.Context(), deployment.Ref())
			must(t, err)
			if got := string(r.Result.Body); got != want {
				t.Errorf("the destination belongs to %q, want %q", got, want)
			}
			if left := r.Deadline.Sub(r.ReadAt); left < 90*365*24*time.Hour {
				t.Errorf("the identity expires in %v", left)
			}
		}
	})
}

// A move that is given up leaves a destination that can be used, with or without the
// identity that it had.
func TestAbandonedDestinationWithAnIdentity(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		stock(t, from)
		_, err := to.Create(t.Context(), identity("the destination's"))
		must(t, err)
		name, err := from.Mover().Follow(t.Context(), retrysafe.Owner{1})
		must(t, err)
		must(t, to.Mover().Fill(t.Context(), retrysafe.Owner{1}, name, "the source"))
		must(t, move.Abandon(t.Context(), from, to))
		if _, err := to.Load(t.Context(), deployment.Ref()); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("after Abandon the destination is not empty: %v", err)
		}
		serves(t, to)
		serves(t, from)
	})
}
