// Package wire checks what the gateway lets through, as a process of its own
// between real connections: no request reaches a service more often than an attempt
// is recorded, and no bytes bring it down or past it.
package wire

import "github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"

// Checks returns the checks of this package, in the order in which they should run.
func Checks() []prove.Check {
	return []prove.Check{
		{
			Name: "resend", Goal: "G15", Size: prove.Size{Of: "deaths", Change: 200, Release: 1000}, Holds: []string{"S1", "S9", "S11", "S16"},
			Shows: "a service that executes and then dies, in any way, is never called more often than attempts are recorded, by the gateway or by the outbox",
			Needs: prove.Store | prove.Processes | prove.Transactions, Run: resend,
		},
		{
			Name: "torture", Goal: "G11", Size: prove.Size{Of: "attacks", Change: 3000, Release: 10_000}, Holds: []string{"S8", "S13", "S16"},
			Shows: "hostile requests neither crash the gateway nor get past it: no panic, no 5xx, no leak, and every forwarded request is accepted by a strict parser",
			Needs: prove.Store | prove.Processes, Run: torture,
		},
	}
}
