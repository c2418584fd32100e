package listener

import "sync"

// A connLimit bounds the number of open connections. One goroutine acquires, any may
// release.
type connLimit struct {
	freed chan struct{} // there may be room again

	mu   sync.Mutex
	open int
	max  int
}

func newConnLimit(most int) *connLimit { return &connLimit{freed: make(chan struct{}, 1), max: most} }

// acquire waits until one more may be open, and calls full before it waits. It reports
// false if done is closed first.
func (l *connLimit) acquire(done <-chan struct{}, full func()) bool {
	for !l.tryAcquire() {
		full()
		select {
		case <-l.freed:
		case <-done:
			return false
		}
	}
	return true
}

func (l *connLimit) tryAcquire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.max {
		return false
	}
	l.open++
	return true
}

func (l *connLimit) release() {
	l.mu.Lock()
	l.open--
	l.mu.Unlock()
	l.signal()
}

// set changes how many there may be. Those that are there already stay.
func (l *connLimit) set(most int) {
	l.mu.Lock()
	l.max = most
	l.mu.Unlock()
	l.signal()
}

func (l *connLimit) signal() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
