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

// maxOperations bounds how many operations are remembered; beyond it all others
// share one average.
const maxOperations = 1024

// durations knows how long each operation took lately, so that a retry is told to
// come back when the answer is likely to be there.
type durations struct {
	byOperation sync.Map // string → *usual
	known       atomic.Int32
	others      movingAverage
}

// movingAverage is how long one operation takes: an average that forgets by an eighth.
type movingAverage struct {
	count   atomic.Uint32
	average atomic.Int64 // nanoseconds
}

func (p *durations) average(operation string, add bool) *movingAverage {
	if v, ok := p.byOperation.Load(operation); ok {
		return v.(*movingAverage)
	}
	if !add || p.known.Load() >= maxOperations {
		return &p.others
	}
	v, loaded := p.byOperation.LoadOrStore(operation, new(movingAverage))
	if !loaded {
		p.known.Add(1)
	}
	return v.(*movingAverage)
}

// note takes the time of one attempt of the operation that ends now. Of many it
// takes one in eight: reading the clock is not free everywhere. Two notes at once
// may lose one of them, which an average can bear.
func (p *durations) note(operation string, took func() time.Duration) {
	u := p.average(operation, true)
	if n := u.count.Add(1); n > 8 && n%8 != 0 {
		return
	}
	now, old := int64(took()), u.average.Load()
	if old != 0 {
		now = old + (now-old)/8
	}
	u.average.Store(now)
}

// retryAfter returns when to ask again about an attempt in flight: about as long
// as the operation usually takes, and never the whole of a long lease.
func (p *durations) retryAfter(operation string, lease time.Duration) time.Duration {
	average := time.Duration(p.average(operation, false).average.Load())
	return min(max(average, 100*time.Millisecond), lease, 30*time.Second)
}
