package listener

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A tokenLimit is a rate limit of wrong tokens per address: burst at once, and one more
// in each refill. The token of an address over the limit is not compared, so that a
// token cannot be guessed; other addresses are not affected.
type tokenLimit struct {
	mu  sync.Mutex
	all map[netip.Addr]*rate.Limiter // none: the address has all its attempts
}

const (
	burst  = 10
	refill = time.Second
	// maxAddresses bounds the memory. Beyond it new addresses share one entry.
	maxAddresses = 1024
)

func newTokenLimit() *tokenLimit { return &tokenLimit{all: make(map[netip.Addr]*rate.Limiter)} }

// check classifies the sender of a right or wrong token, and counts a wrong one.
func (a *tokenLimit) check(from netip.Addr, right bool) caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.all) >= maxAddresses {
		a.forget(now)
	}
	from = a.account(from)
	left := a.all[from]
	switch {
	case left != nil && left.TokensAt(now) < 1:
		return slowed
	case right:
		return operator
	case left == nil:
		left = rate.NewLimiter(rate.Every(refill), burst)
		a.all[from] = left
	}
	left.AllowN(now, 1)
	return stranger
}

// account returns where an address is counted.
func (a *tokenLimit) account(from netip.Addr) netip.Addr {
	if _, known := a.all[from]; known || len(a.all) < maxAddresses {
		return from
	}
	return netip.Addr{}
}

// forget drops addresses that have all their attempts back.
func (a *tokenLimit) forget(now time.Time) {
	for from, left := range a.all {
		if left.TokensAt(now) >= burst {
			delete(a.all, from)
		}
	}
}
