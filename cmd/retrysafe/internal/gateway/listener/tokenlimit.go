package listener

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A tokenLimit is a rate limit of wrong tokens per address: burst at once, and one more
// in each refill. It bounds what strangers write to the log and keeps scanners off. It is
// never in the way of the right token: a stranger behind the same address, or a scraper
// with an old one, could otherwise lock the operators out. Guessing is hopeless without
// it, because a token has at least 16 characters.
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

// wrong classifies the sender of a wrong token, and counts it.
func (a *tokenLimit) wrong(from netip.Addr) caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.all) >= maxAddresses {
		a.forget(now)
	}
	from = a.account(from)
	left := a.all[from]
	if left == nil {
		left = rate.NewLimiter(rate.Every(refill), burst)
		a.all[from] = left
	}
	if !left.AllowN(now, 1) {
		return slowed
	}
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
