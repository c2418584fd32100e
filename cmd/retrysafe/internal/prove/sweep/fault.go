package sweep

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A kind is a way in which a step goes wrong.
type kind string

const (
	// once: it fails and was not done.
	once kind = "once"
	// ambiguous: it was done, and fails all the same.
	ambiguous kind = "ambiguous"
	// hang: it does not come back in time, and was not done.
	hang kind = "hang"
	// stall: it was done, and does not come back in time.
	stall kind = "stall"
	// forever: the store is gone from this step on, until the client has given up.
	forever kind = "for ever"
	// cutOff: the store is gone from this step on for one node. It is back when
	// others have brought the key to its end.
	cutOff kind = "cut off"
)

var kinds = []kind{once, ambiguous, hang, stall, forever, cutOff}

// A fault is the n-th step going wrong.
type fault struct {
	n    int
	kind kind
}

func (f fault) String() string { return fmt.Sprintf("step %d %s", f.n, f.kind) }

var errInjected = errors.New("sweep: injected failure")

// longest bounds how long a step hangs whose context has no deadline.
const longest = 2 * shortBudget

// faults is a gate at which the steps of a plan go wrong.
type faults struct {
	mu       sync.Mutex
	plan     []fault
	n        int // steps so far
	gone     bool
	healed   bool
	fired    int // faults of the plan that came about
	injected int // steps that failed because of them
	trace    []string
}

// pass implements gate.
func (f *faults) pass(ctx context.Context, name string, do func()) error {
	k := f.next(name)
	switch k {
	case "":
		do()
		return nil
	case once:
		return errInjected
	case ambiguous:
		do()
		return errInjected
	case stall:
		do()
		fallthrough
	default: // hang
		prove.Pause(ctx, longest)
		return errInjected
	}
}

// next says how the step goes wrong that comes now. Calls of the provider are not
// the store's: when that is gone they are made all the same.
func (f *faults) next(name string) (k kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.healed {
		return ""
	}
	f.n++
	for _, one := range f.plan {
		if one.n == f.n {
			f.fired++
			k = one.kind
		}
	}
	if k == forever || k == cutOff {
		f.gone, k = true, once
		if name == stepCall {
			k = ambiguous
		}
	}
	if f.gone && k == "" && name != stepCall {
		k = once
	}
	if k != "" {
		f.injected++
	}
	if len(f.trace) < 100 {
		f.trace = append(f.trace, fmt.Sprintf("%d %s %s", f.n, name, k))
	}
	return k
}

// heal lets everything through from now on.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.healed = true
}

// outcome returns how many faults came about, how many steps failed, and what was
// seen of them.
func (f *faults) outcome() (fired, injected int, trace []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired, f.injected, f.trace
}
