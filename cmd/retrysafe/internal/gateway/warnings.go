package gateway

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// warnings are what an operator should look at.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// leaseFactor is how many of a route's slow attempts its lease should last for.
const leaseFactor = 3

// noteLatency notes how long an attempt took, and warns once if the lease is short for
// that: an attempt whose lease lapses may just be slow.
func (rt *route) noteLatency(took time.Duration) {
	if rt.latency.note(took)%checkEvery != 0 || rt.warned.Load() {
		return
	}
	p99 := rt.latency.p99()
	if rt.policy.Lease >= leaseFactor*p99 || rt.warned.Swap(true) {
		return
	}
	rt.g.warnings.add(fmt.Sprintf("%s: its lease of %v is under %d times what its slow attempts take (p99 is %v); make it at least %v",
		rt.name, rt.policy.Lease, leaseFactor, p99, leaseFactor*p99))
	rt.g.logger.Warn("retrysafe: lease is short for its route", "route", rt.name, "lease", rt.policy.Lease, "p99", p99, "advised", leaseFactor*p99)
}
