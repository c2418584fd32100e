package groupcommit

import (
	"sync"
	"sync/atomic"
)

// A Life admits steps until it has ended, so that a store can close when its last step
// has. The zero Life has begun. Enter never blocks, so a step may hold locks when it
// enters, and may enter again.
type Life struct {
	steps atomic.Int64 // under way, and over from the beginning of End
	mu    sync.Mutex
	idle  sync.Cond // the last step has left; with mu
}

const over = 1 << 62

// Enter begins a step, which Leave must end. It reports false when the life has ended, or
// is about to.
func (l *Life) Enter() bool {
	if l.steps.Add(1) < over {
		return true
	}
	l.Leave()
	return false
}

// Leave ends a step.
func (l *Life) Leave() {
	if l.steps.Add(-1) == over {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.idle.Broadcast()
	}
}

// End admits no further step, and returns when none is under way.
func (l *Life) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle.L = &l.mu
	l.steps.Or(over)
	for l.steps.Load() != over {
		l.idle.Wait()
	}
}
