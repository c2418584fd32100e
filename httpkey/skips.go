package httpkey

import (
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

const (
	firstDelay   = time.Second
	longestDelay = time.Minute
	// maxSkips bounds the set. A record that does not fit into it is only tried again
	// earlier.
	maxSkips = 10_000
)

// skips are the records that a worker skips: those that it runs, and those that failed
// lately. The delay of the latter doubles with each failure.
type skips struct {
	mu  sync.Mutex
	all map[retrysafe.Ref]*skip
}

type skip struct {
	busy  bool
	delay time.Duration
	until time.Time
}

// start marks the record as running, and reports whether it may run now.
func (s *skips) start(ref retrysafe.Ref, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.all[ref]
	switch {
	case known == nil:
		if s.all == nil {
			s.all = make(map[retrysafe.Ref]*skip)
		}
		s.all[ref] = &skip{busy: true}
		return true
	case known.busy || now.Before(known.until):
		return false
	}
	known.busy = true
	return true
}

// done removes a record that was run.
func (s *skips) done(ref retrysafe.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, ref)
}

// failed delays a record that could not be run.
func (s *skips) failed(ref retrysafe.Ref, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.all[ref]
	if len(s.all) > maxSkips {
		delete(s.all, ref)
		return
	}
	known.delay = min(max(2*known.delay, firstDelay), longestDelay)
	known.busy, known.until = false, now.Add(known.delay)
}

// evict removes records that have not failed again.
func (s *skips) evict(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, known := range s.all {
		if !known.busy && now.Sub(known.until) > longestDelay {
			delete(s.all, ref)
		}
	}
}
