package groupcommit

import "sync"

// A Life admits steps until it has ended, so that a store can close when its last step
// has. The zero Life has begun.
type Life struct {
	mu   sync.RWMutex
	over bool
}

// Enter begins a step, which Leave must end. It reports false when the life has ended.
func (l *Life) Enter() bool {
	l.mu.RLock()
	if l.over {
		l.mu.RUnlock()
		return false
	}
	return true
}

// Leave ends a step.
func (l *Life) Leave() { l.mu.RUnlock() }

// End admits no further step, and returns when none is under way.
func (l *Life) End() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
}
