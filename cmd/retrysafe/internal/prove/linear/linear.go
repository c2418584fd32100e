// Package linear looks at a store as its users do, from many processes at once, and
// compares what they saw with what a store may show.
//
// The check "linear" has them do every step of the contract on a few common keys,
// while they are killed, cut off and run out of time, and asks of each key's history
// whether the steps could have happened one after the other. The check "isolation"
// has tenants use the same keys, and asks whether any of them can tell.
package linear

import (
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
)

// Checks returns the checks of this package, in the order in which they should run.
func Checks() []prove.Check {
	return []prove.Check{{
		Name:  "linear",
		Goal:  "G8",
		Size:  prove.Size{Of: "steps", Change: 100_000, Release: 1_000_000},
		Shows: "Whatever is killed, cut off or timed out, the steps on a key happen one after the other, completely or not at all, and its revisions only grow.",
		Holds: []string{"S1", "S4", "S5", "S10"},
		Needs: prove.Store | prove.Processes,
		Run:   runLinear,
	}, {
		Name:  "isolation",
		Goal:  "G14",
		Size:  prove.Size{Of: "questions", Change: 50_000, Release: 1_000_000},
		Shows: "Tenants that use the same keys never see each other's answers, nor whether there are any.",
		Holds: []string{"S1", "S2", "S7"},
		Needs: prove.Store,
		Run:   runIsolation,
	}}
}

// Roles returns what a process may be that the checks have started.
func Roles() map[string]child.Role {
	return map[string]child.Role{roleClient: runClient}
}
