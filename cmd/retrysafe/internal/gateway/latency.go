package gateway

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latency is how long the attempts of a route took: a histogram whose buckets are a
// quarter of a power of two wide, from a microsecond to hours. It has no lock.
type latency struct {
	count   atomic.Uint64
	buckets [latencyBuckets]atomic.Uint64
}

const (
	latencyBuckets = 4 * 36
	// minSamples is how many attempts it takes to speak of their slowest hundredth.
	minSamples = 100
	// checkEvery is after how many attempts their slowest hundredth is looked at.
	checkEvery = 64
)

// note adds one and reports how many there are.
func (l *latency) note(d time.Duration) uint64 {
	l.buckets[bucketOf(d)].Add(1)
	return l.count.Add(1)
}

// p99 is what 99 of 100 attempts did not exceed, rounded up to the end of a bucket. It
// is zero while there are too few.
func (l *latency) p99() time.Duration {
	total := l.count.Load()
	if total < minSamples {
		return 0
	}
	above := total / 100
	for i := latencyBuckets - 1; i > 0; i-- {
		n := l.buckets[i].Load()
		if n > above {
			return endOf(i)
		}
		above -= n
	}
	return endOf(0)
}

func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 4 {
		return int(us)
	}
	power := bits.Len64(us) - 1
	return min(4*(power-1)+int(us>>(power-2)&3), latencyBuckets-1)
}

// endOf is the inverse of bucketOf: where the bucket ends.
func endOf(i int) time.Duration {
	if i < 4 {
		return time.Duration(i+1) * time.Microsecond
	}
	power := i/4 + 1
	return time.Duration(uint64(4+i%4+1)<<(power-2)) * time.Microsecond
}
