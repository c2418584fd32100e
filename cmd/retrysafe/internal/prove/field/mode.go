package field

import (
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// policy returns a mode's policy, as an engine knows it.
func policy(m effect.Mode, lease, wait time.Duration) retrysafe.Policy {
	p := retrysafe.Policy{Lease: lease, Reconcile: lease / 2, Wait: wait}
	if wait > 0 {
		p.InFlight = retrysafe.InFlightWait
	}
	m.Declare(&p)
	return p
}

// holdHeader is where the client says at which point the attempt is to be held.
const holdHeader = "Hold"

// A point is where an attempt can be held.
type point string

const (
	before point = "before" // its effect
	within point = "within" // its transaction, all written and nothing committed
	after  point = "after"  // its effect, before its answer is stored or confirmed
)
