package httpkey

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxScopes bounds how many tenants and scopes are remembered. A full bucket is the
// same as none, so those are forgotten first.
const maxScopes = 100_000

// buckets are token buckets, one for each tenant. Nil limits nothing.
type buckets struct {
	limit rate.Limit
	burst int

	// mu is held while a bucket is used, too: package rate returns less than it took
	// when another reservation comes between a refused one and its cancellation.
	mu     sync.Mutex
	scopes map[string]*rate.Limiter
}

// newBuckets returns buckets that fill at perSecond and hold burst tokens, at least one.
func newBuckets(perSecond float64, burst int) *buckets {
	if perSecond == 0 {
		return nil
	}
	return &buckets{limit: min(rate.Limit(perSecond), rate.Inf), burst: burst, scopes: make(map[string]*rate.Limiter)}
}

// twice is the burst of a rate that has none of its own.
func twice(perSecond float64) int {
	return int(min(math.Ceil(max(1, 2*perSecond)), math.MaxInt32))
}

// take takes a token, or says when there will be one.
func (b *buckets) take(scope string) (wait time.Duration, ok bool) {
	if b == nil {
		return 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	token := b.at(scope, now).ReserveN(now, 1)
	if wait = token.DelayFrom(now); wait > 0 {
		token.CancelAt(now)
	}
	return wait, wait == 0
}

// giveBack returns a token that was taken. Canceling its reservation would return
// nothing: a reservation counts as used once its time has come. A negative number of
// events is not documented by package rate, but widely relied on (go.dev/issue/54082).
func (b *buckets) giveBack(scope string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.at(scope, now).AllowN(now, -1)
}

// at returns the bucket of a scope.
func (b *buckets) at(scope string, now time.Time) *rate.Limiter {
	if l := b.scopes[scope]; l != nil {
		return l
	}
	if len(b.scopes) >= maxScopes {
		b.forget(now)
	}
	l := rate.NewLimiter(b.limit, b.burst)
	b.scopes[scope] = l
	return l
}

// forget drops the buckets that are full by now, or all if none is.
func (b *buckets) forget(now time.Time) {
	for scope, l := range b.scopes {
		if l.TokensAt(now) >= float64(b.burst) {
			delete(b.scopes, scope)
		}
	}
	if len(b.scopes) >= maxScopes {
		clear(b.scopes)
	}
}
