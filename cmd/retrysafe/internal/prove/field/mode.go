package field

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// A mode is how a node does what it is asked for. It is the name of its route.
type mode string

const (
	inTx        mode = "in-tx"       // a reservation, then effect and answer in one transaction
	oneCommit   mode = "one-commit"  // all three in one transaction
	keyed       mode = "keyed"       // a provider that honours keys
	unprotected mode = "unprotected" // a provider that does not
)

var modes = []mode{inTx, oneCommit, keyed, unprotected}

// local reports whether effects are in the store's own database.
func (m mode) local() bool { return m == inTx || m == oneCommit }

// policy is the mode as an engine knows it.
func (m mode) policy(lease, wait time.Duration) retrysafe.Policy {
	p := retrysafe.Policy{Lease: lease, Reconcile: lease / 2, Wait: wait}
	if wait > 0 {
		p.InFlight = retrysafe.InFlightWait
	}
	switch m {
	case inTx, oneCommit:
		p.Effects, p.Lapse = retrysafe.EffectsInTx, retrysafe.LapseRerun
	case keyed:
		p.Effects, p.Lapse = retrysafe.EffectsKeyed, retrysafe.LapseRerun
	case unprotected:
	}
	return p
}

// A point is where an attempt can be held.
type point string

const (
	before point = "before" // its effect
	within point = "within" // its transaction, all written and nothing committed
	after  point = "after"  // its effect, before its answer is stored or confirmed
)
