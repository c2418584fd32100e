package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A Load is what clients do again and again.
type Load string

// The loads.
const (
	Bare      Load = "bare loop"  // a row for the key and then its answer, without retrysafe: two writes
	Fresh     Load = "new keys"   // reserve and complete
	OneCommit Load = "one commit" // effect, reservation and answer in one transaction
	Replay    Load = "replays"    // the answer of a key that is completed
)

const (
	// rounds is how often each load is measured. The middle one counts.
	rounds = 3
	// shortest is the least time for one measurement.
	shortest = 20 * time.Millisecond
	// MaxClients is the most clients of a plan.
	MaxClients = 4096
	// Connections is how many connections the bare loop and transactions have at most.
	Connections = 32
)

// A Plan is what is measured, and for how long.
type Plan struct {
	Clients []int
	Loads   []Load
	// Duration is how long all measurements take together. Warming up comes on top.
	Duration time.Duration
}

// NewPlan returns the plan for a store. Its error says which value is wrong.
func NewPlan(address string, clients []int, d time.Duration) (*Plan, error) {
	p := &Plan{Clients: clients, Loads: []Load{Bare, Fresh, OneCommit, Replay}, Duration: d}
	if !storeurl.JoinsTransactions(address) {
		p.Loads = []Load{Bare, Fresh, Replay}
	}
	if len(clients) == 0 {
		return nil, errors.New("no number of clients is given: 1,8,32")
	}
	for i, n := range clients {
		switch {
		case n < 1 || n > MaxClients:
			return nil, fmt.Errorf("%d clients: choose 1 to %d", n, MaxClients)
		case slices.Contains(clients[:i], n):
			return nil, fmt.Errorf("%d clients are given twice", n)
		}
	}
	if p.slice() < shortest {
		return nil, fmt.Errorf("%v is too short: these are %d measurements of at least %v; choose %v or more", d, p.measurements(), shortest, time.Duration(p.measurements())*shortest)
	}
	return p, nil
}

func (p *Plan) measurements() int { return len(p.Clients) * len(p.Loads) * rounds }

// slice is how long one measurement lasts.
func (p *Plan) slice() time.Duration { return p.Duration / time.Duration(p.measurements()) }

// warmUp is how long a load runs unmeasured, from each number of clients.
func (p *Plan) warmUp() time.Duration { return min(p.slice()/2, 250*time.Millisecond) }

// Takes is how long the whole takes, about.
func (p *Plan) Takes() time.Duration {
	return p.Duration + time.Duration(len(p.Clients)*len(p.Loads))*p.warmUp() + 2*probeLasts
}

// Writes is for how much of it the loads write, about.
func (p *Plan) Writes() time.Duration {
	return p.Takes() * time.Duration(len(p.Loads)-1) / time.Duration(len(p.Loads)) // replays write nothing
}
