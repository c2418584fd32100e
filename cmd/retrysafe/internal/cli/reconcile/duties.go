package reconcile

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/duties"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// handled returns how many records the duties have handled so far.
func handled(d *duties.Set) (n int64) {
	if d.Sweeper != nil {
		s := d.Sweeper.Stats()
		n += int64(s.Quarantined + s.Failed + s.Released + s.Requeued + s.Abandoned)
	}
	if d.Reconciler != nil {
		n += int64(d.Reconciler.Stats().Asked)
	}
	if d.Reaper != nil {
		s := d.Reaper.Stats()
		n += int64(s.Deleted + s.Expired)
	}
	return n
}

// resolverFailed reports whether the resolver was asked and failed every time.
func resolverFailed(counts map[string]map[string]uint64) bool {
	asked := counts["reconcile"]["asked"]
	return asked > 0 && asked == counts["reconcile"]["resolver_errors"]
}

// report writes what each duty has done: all numbers for scripts, those above zero for
// people.
func report(w io.Writer, all map[string]map[string]uint64, asJSON bool) error {
	if asJSON {
		return terminal.WriteJSON(w, all)
	}
	for _, duty := range duties.Names {
		counts, ok := all[duty]
		if !ok {
			continue
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if n := counts[name]; n > 0 {
				parts = append(parts, terminal.Number(n)+" "+strings.ReplaceAll(name, "_", " "))
			}
		}
		if len(parts) == 0 {
			parts = []string{"nothing to do"}
		}
		fmt.Fprintf(w, "%-10s %s\n", duty, strings.Join(parts, ", "))
	}
	return nil
}
