// Package duties is what the background duties of one run have done, for commands and for
// the admin API of a gateway.
package duties

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe/janitor"
)

// Names are the duties in the order of one pass: each finds what the one before has left.
var Names = []string{"sweep", "reconcile", "reap"}

// A Set is the duties of one run. Those that are not performed are nil.
type Set struct {
	Sweeper    *janitor.Sweeper
	Reconciler *janitor.Reconciler
	Reaper     *janitor.Reaper
}

// List returns the duties that are performed, in their order.
func (s *Set) List() (all []janitor.Duty) {
	if s.Sweeper != nil {
		all = append(all, s.Sweeper)
	}
	if s.Reconciler != nil {
		all = append(all, s.Reconciler)
	}
	if s.Reaper != nil {
		all = append(all, s.Reaper)
	}
	return all
}

// RunOnce makes one pass of each duty. Around, which may be nil, is called with each.
func (s *Set) RunOnce(ctx context.Context, around func(pass func() error) error) error {
	for _, duty := range s.List() {
		pass := func() error {
			if _, err := duty.RunOnce(ctx); err != nil {
				return err
			}
			return ctx.Err()
		}
		var err error
		if around == nil {
			err = pass()
		} else {
			err = around(pass)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", duty.Schedule().Name, err)
		}
	}
	return nil
}

// Counts returns what each duty has done.
func (s *Set) Counts() map[string]map[string]uint64 {
	all := map[string]map[string]uint64{}
	if s.Sweeper != nil {
		n := s.Sweeper.Stats()
		all["sweep"] = map[string]uint64{
			"quarantined": n.Quarantined, "failed": n.Failed, "released": n.Released, "requeued": n.Requeued, "abandoned": n.Abandoned,
			"overtaken": n.Overtaken, "unreadable": uint64(n.Unreadable),
		}
	}
	if s.Reconciler != nil {
		n := s.Reconciler.Stats()
		all["reconcile"] = map[string]uint64{
			"asked": n.Asked, "resolver_errors": n.ResolverErrors, "completed": n.Completed, "released": n.Released,
			"still_unknown": n.StillUnknown, "dead": n.Dead, "contradicted": n.Contradicted, "skipped": n.Skipped, "overtaken": n.Overtaken, "unreadable": uint64(n.Unreadable),
		}
	}
	if s.Reaper != nil {
		n := s.Reaper.Stats()
		all["reap"] = map[string]uint64{"deleted": n.Deleted, "expired": n.Expired}
	}
	return all
}
