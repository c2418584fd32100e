// Package servers breaks database servers: it kills them under load, cuts what they
// reply, and promotes their standbys. The nodes that use them run in this process,
// and what clients were told is held against what the servers have afterwards.
//
// It starts servers of its own, which takes Linux and their programs.
package servers

import "github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"

// Checks returns the checks of this package, in the order in which to run them.
func Checks() []prove.Check {
	return []prove.Check{
		{
			Name: "killdb", Goal: "G6", Size: prove.Size{Of: "kills", Change: 50, Release: 500},
			Shows: "A PostgreSQL server that is killed under load, or whose replies are lost, loses no answer that a client was shown, repeats no effect and leaves no key stuck.",
			Holds: []string{"S1", "S2", "S3", "S4", "S5", "S8", "S9", "L1", "L3"},
			Needs: prove.Servers, Run: killdb,
		},
		{
			Name: "ha", Goal: "G7", Size: prove.Size{Of: "failovers", Change: 50, Release: 500},
			Shows: "A failover to a synchronous standby loses and repeats nothing; a failover to an asynchronous standby does, and the store reports that class at startup.",
			Holds: []string{"S1", "S2", "S3", "S4", "S8", "S9", "L1", "L3"},
			Needs: prove.Servers, Run: ha,
		},
	}
}
