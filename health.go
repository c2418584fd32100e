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

// breaker is a circuit breaker in front of a store that does not answer, so that calls
// do not queue up behind it. It guards reservations only: an answer that exists is
// always offered to the store. While the store answers, it costs one atomic read.
//
// A store whose disk is full, or that has become a read-only standby, answers reads and
// fails writes. So a row of failures with a write in it ends only with a write that
// succeeds.
type breaker struct {
	failures    atomic.Int32 // in a row
	writeFailed atomic.Bool  // one of them was a write
	mu          sync.Mutex
	retryAt     time.Time // when open: from then on one call may try
	writeAt     time.Time // when open: from then on one write may be tried on behalf of a read
}

// A healthNote is what the result of a step says about the store.
type healthNote uint8

const (
	noteReadFailed  healthNote = iota // a read that was not answered
	noteWriteFailed                   // a write that was not answered
	noteAnswered                      // an answer, without a write
	noteWrote                         // a write that succeeded
)

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

// note records what a step has shown.
func (b *breaker) note(clock Clock, n healthNote) {
	switch n {
	case noteWrote, noteAnswered:
		if b.failures.Load() == 0 || n == noteAnswered && b.writeFailed.Load() {
			return
		}
		b.failures.Store(0)
		b.writeFailed.Store(false)
	default:
		b.mu.Lock()
		defer b.mu.Unlock()
		if n == noteWriteFailed {
			b.writeFailed.Store(true)
		}
		b.failures.Add(1)
		b.retryAt = clock.Now().Add(breakerRests)
	}
}

// wantsWrite reports whether a store that has answered a read should be tried with a
// write of the engine's own: nothing but a write can close the breaker, and the calls
// that arrive may all be replays.
func (b *breaker) wantsWrite(clock Clock) bool {
	if !b.open() || !b.writeFailed.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := clock.Now()
	if now.Before(b.writeAt) {
		return false
	}
	b.writeAt = now.Add(breakerRests)
	return true
}

// open reports whether reservations are refused at present.
func (b *breaker) open() bool { return b.failures.Load() >= breakerTrips }

// maxOperations bounds how many operations have an average of their own. All others
// share one.
const maxOperations = 1024

// durations keeps how long each operation took lately. The refusal of a retry computes
// its Retry-After from it.
type durations struct {
	byOperation sync.Map // string → *movingAverage
	known       atomic.Int32
	others      movingAverage
}

// movingAverage is the exponential moving average of one operation's durations; a new
// value weighs one eighth.
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

// note records the duration of one attempt of the operation that ends now. After the
// first eight it records one in eight, because reading the clock is not free everywhere.
// Two concurrent notes may lose one of them, which an average tolerates.
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
