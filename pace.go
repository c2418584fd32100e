package retrysafe

import (
	"sync"
	"sync/atomic"
	"time"
)

// maxPaces bounds how many operations are remembered; beyond it all others
// share one average.
const maxPaces = 1024

// pace knows how long each operation took lately, so that a retry is told to
// come back when the answer is likely to be there.
type pace struct {
	byOperation sync.Map // string → *usual
	known       atomic.Int32
	others      usual
}

// usual is how long one operation takes: an average that forgets by an eighth.
type usual struct {
	count   atomic.Uint32
	average atomic.Int64 // nanoseconds
}

func (p *pace) of(operation string, add bool) *usual {
	if v, ok := p.byOperation.Load(operation); ok {
		return v.(*usual)
	}
	if !add || p.known.Load() >= maxPaces {
		return &p.others
	}
	v, loaded := p.byOperation.LoadOrStore(operation, new(usual))
	if !loaded {
		p.known.Add(1)
	}
	return v.(*usual)
}

// note takes the time of one attempt of the operation that ends now. Of many it
// takes one in eight: reading the clock is not free everywhere. Two notes at once
// may lose one of them, which an average can bear.
func (p *pace) note(operation string, took func() time.Duration) {
	u := p.of(operation, true)
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
func (p *pace) retryAfter(operation string, lease time.Duration) time.Duration {
	average := time.Duration(p.of(operation, false).average.Load())
	return min(max(average, 100*time.Millisecond), lease, 30*time.Second)
}
