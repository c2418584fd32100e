package reconcile

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/janitor"
)

// dutyNames are the duties in the order of one pass: each finds what the one before has
// left.
var dutyNames = []string{"sweep", "reconcile", "reap"}

// duties are the background duties of one run. Those that are not performed are nil.
type duties struct {
	sweeper    *janitor.Sweeper
	reconciler *janitor.Reconciler
	reaper     *janitor.Reaper
}

// list returns the duties that are performed, in their order.
func (d *duties) list() (all []janitor.Duty) {
	if d.sweeper != nil {
		all = append(all, d.sweeper)
	}
	if d.reconciler != nil {
		all = append(all, d.reconciler)
	}
	if d.reaper != nil {
		all = append(all, d.reaper)
	}
	return all
}

// runOnce makes one pass of each duty.
func (d *duties) runOnce(ctx context.Context, env *command.Env) error {
	for _, duty := range d.list() {
		stop := env.Progress().Watch(func() (int64, string) { return d.handled(), "records handled" })
		_, err := duty.RunOnce(ctx)
		stop()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", duty.Schedule().Name, err)
		}
	}
	return nil
}

// handled returns how many records the duties have handled so far.
func (d *duties) handled() (n int64) {
	if d.sweeper != nil {
		s := d.sweeper.Stats()
		n += int64(s.Quarantined + s.Failed + s.Released + s.Requeued + s.Abandoned)
	}
	if d.reconciler != nil {
		n += int64(d.reconciler.Stats().Asked)
	}
	if d.reaper != nil {
		s := d.reaper.Stats()
		n += int64(s.Deleted + s.Expired)
	}
	return n
}

// resolverFailed reports whether the resolver was asked and failed every time.
func (d *duties) resolverFailed() bool {
	if d.reconciler == nil {
		return false
	}
	s := d.reconciler.Stats()
	return s.Asked > 0 && s.Asked == s.ResolverErrors
}

// counts returns what each duty has done.
func (d *duties) counts() map[string]map[string]uint64 {
	all := map[string]map[string]uint64{}
	if d.sweeper != nil {
		s := d.sweeper.Stats()
		all["sweep"] = map[string]uint64{
			"quarantined": s.Quarantined, "failed": s.Failed, "released": s.Released, "requeued": s.Requeued, "abandoned": s.Abandoned,
			"overtaken": s.Overtaken, "unreadable": uint64(s.Unreadable),
		}
	}
	if d.reconciler != nil {
		s := d.reconciler.Stats()
		all["reconcile"] = map[string]uint64{
			"asked": s.Asked, "resolver errors": s.ResolverErrors, "completed": s.Completed, "released": s.Released,
			"still unknown": s.StillUnknown, "dead": s.Dead, "contradicted": s.Contradicted, "skipped": s.Skipped, "overtaken": s.Overtaken, "unreadable": uint64(s.Unreadable),
		}
	}
	if d.reaper != nil {
		s := d.reaper.Stats()
		all["reap"] = map[string]uint64{"deleted": s.Deleted, "expired": s.Expired}
	}
	return all
}

// report writes what each duty has done: all numbers for scripts, those above zero for
// people.
func (d *duties) report(w io.Writer, asJSON bool) error {
	all := d.counts()
	if asJSON {
		for _, counts := range all {
			for name, n := range counts {
				if member := strings.ReplaceAll(name, " ", "_"); member != name {
					delete(counts, name)
					counts[member] = n
				}
			}
		}
		return terminal.WriteJSON(w, all)
	}
	for _, duty := range dutyNames {
		counts, ok := all[duty]
		if !ok {
			continue
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if n := counts[name]; n > 0 {
				parts = append(parts, terminal.Number(n)+" "+name)
			}
		}
		if len(parts) == 0 {
			parts = []string{"nothing to do"}
		}
		fmt.Fprintf(w, "%-10s %s\n", duty, strings.Join(parts, ", "))
	}
	return nil
}
