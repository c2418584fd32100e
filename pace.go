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
	byOperation sync.Map // string → *atomic.Int64, nanoseconds
	known       atomic.Int32
	others      atomic.Int64
}

func (p *pace) of(operation string, add bool) *atomic.Int64 {
	if v, ok := p.byOperation.Load(operation); ok {
		return v.(*atomic.Int64)
	}
	if !add || p.known.Load() >= maxPaces {
		return &p.others
	}
	v, loaded := p.byOperation.LoadOrStore(operation, new(atomic.Int64))
	if !loaded {
		p.known.Add(1)
	}
	return v.(*atomic.Int64)
}

// note records one duration: an average that forgets by an eighth. Two notes at
// once may lose one of them, which an average can bear.
func (p *pace) note(operation string, took time.Duration) {
	avg := p.of(operation, true)
	old := avg.Load()
	if old == 0 {
		avg.Store(int64(took))
		return
	}
	avg.Store(old + (int64(took)-old)/8)
}

// retryAfter returns when to ask again about an attempt in flight: about as long
// as the operation usually takes, and never the whole of a long lease.
func (p *pace) retryAfter(operation string, lease time.Duration) time.Duration {
	usual := time.Duration(p.of(operation, false).Load())
	return min(max(usual, 100*time.Millisecond), lease, 30*time.Second)
}
