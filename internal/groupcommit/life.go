package groupcommit

import "sync"

// A Life lets steps in until it is over. The zero Life has begun.
type Life struct {
	mu   sync.RWMutex
	over bool
}

// Enter begins a step, which Leave must end. It reports false when life is over.
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

// End returns when no step is under way, and lets none in any more.
func (l *Life) End() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
}
