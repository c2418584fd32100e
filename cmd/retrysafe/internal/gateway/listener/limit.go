package listener

import "sync"

// A limit counts connections. One goroutine takes, any may give back.
type limit struct {
	freed chan struct{} // there may be room again

	mu   sync.Mutex
	open int
	most int
}

func newLimit(most int) *limit { return &limit{freed: make(chan struct{}, 1), most: most} }

// take waits until there is room for one more, and calls full if there is none. It
// reports false if done comes first.
func (l *limit) take(done <-chan struct{}, full func()) bool {
	for !l.try() {
		full()
		select {
		case <-l.freed:
		case <-done:
			return false
		}
	}
	return true
}

func (l *limit) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		return false
	}
	l.open++
	return true
}

func (l *limit) give() {
	l.mu.Lock()
	l.open--
	l.mu.Unlock()
	l.signal()
}

// set changes how many there may be. Those that are there already stay.
func (l *limit) set(most int) {
	l.mu.Lock()
	l.most = most
	l.mu.Unlock()
	l.signal()
}

func (l *limit) signal() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
