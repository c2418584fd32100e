// Package sweep lets one thing go wrong at one step, at each step in turn, and looks
// at what is left.
//
// A scenario is what a client, a worker or a janitor does with one key, over a store
// whose every step passes a gate. Check crash starts it in a child that ends with no
// warning before or after the n-th step; check nth lets the n-th step fail in one of
// several ways. n is 1, 2, 3 and so on, until the scenario comes to its end by itself.
// Each time another node goes on until the key is final, and then effects, answers and
// messages are counted.
package sweep

import (
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
)

const (
	// lease is how long an attempt that was killed or cut off is believed to live. It
	// is long enough that a heartbeat seldom comes while a transaction is open: on
	// SQLite that waits for the transaction, and would count as a step that hangs.
	lease = 600 * time.Millisecond
	// patience is how long after its lease a key may take to become final. It is
	// generous: what is stuck stays so, and machines are slow.
	patience = time.Minute
	// budget is how long a step of the store may take, generous as well: a step that only
	// waits for a processor must not time out. Where steps hang it is shortBudget.
	budget, shortBudget = 10 * time.Second, 120 * time.Millisecond
	// reconcileAfter is how long an unknown outcome rests before it is looked into.
	reconcileAfter = 20 * time.Millisecond
)

// Checks are those of this package, in the order in which they should run.
func Checks() []prove.Check { return sound.checks() }

// Roles are what its children do.
func Roles() map[string]child.Role { return map[string]child.Role{sound.role: sound.child} }

// sound is the rig with nothing bent.
var sound = rig{role: "sweep.child", scenarios: scenarios}

func (g rig) checks() []prove.Check {
	return []prove.Check{
		{
			Name: "nth", Goal: "G5", Needs: prove.Store | prove.Transactions, Size: prove.Size{Of: "steps of each scenario"},
			Shows: "No step of the store can fail in a way that repeats an effect, loses an answer or lets an operation run without a reservation.",
			Holds: []string{"S1", "S2", "S3", "S4", "S5", "S8", "S11", "L1"},
			Run:   g.nth,
		},
		{
			Name: "crash", Goal: "G4", Needs: prove.Store | prove.Processes | prove.Transactions, Size: prove.Size{Of: "steps of each scenario"},
			Shows: "A program may be killed before or after any step: its keys become final soon after their leases, with one effect and every answer that was shown.",
			Holds: []string{"S1", "S2", "S3", "S4", "S5", "S11", "L1"},
			Run:   g.crash,
		},
	}
}
