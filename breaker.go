package retrysafe

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	breakerTrips = 5               // failures in a row that open it
	breakerRests = 1 * time.Second // how long it stays open before it lets one call try
)

// breaker stops calls from queueing up behind a store that does not answer. It
// guards reservations only: an answer that exists is always offered to the
// store. While all is well it costs one atomic read.
type breaker struct {
	failures atomic.Int32 // in a row
	mu       sync.Mutex
	retryAt  time.Time // when open: the next moment one call may try
}

// allow reports whether a call may go to the store now.
func (b *breaker) allow(clock Clock) bool {
	if !b.open() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := clock.Now()
	if now.Before(b.retryAt) {
		return false
	}
	b.retryAt = now.Add(breakerRests) // one probe per rest
	return true
}

// note records how a step ended.
func (b *breaker) note(clock Clock, ok bool) {
	if ok {
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures.Add(1)
	b.retryAt = clock.Now().Add(breakerRests)
}

// open reports whether reservations are refused at present.
func (b *breaker) open() bool { return b.failures.Load() >= breakerTrips }
