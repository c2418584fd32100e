package listener

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// attempts bounds how many wrong tokens an address may show: burst at once, and one
// more in each refill. An address that has no attempt left is refused whatever it shows,
// so that a token cannot be found by trying. Other addresses do not notice.
type attempts struct {
	mu  sync.Mutex
	all map[netip.Addr]*rate.Limiter // none: the address has all its attempts
}

const (
	burst  = 10
	refill = time.Second
	// maxAddresses bounds the memory. Beyond it all new addresses share one account.
	maxAddresses = 1024
)

func newAttempts() *attempts { return &attempts{all: make(map[netip.Addr]*rate.Limiter)} }

// judge says who shows a right or wrong token, and counts it if it is wrong.
func (a *attempts) judge(from netip.Addr, right bool) caller {
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
func (a *attempts) account(from netip.Addr) netip.Addr {
	if _, known := a.all[from]; known || len(a.all) < maxAddresses {
		return from
	}
	return netip.Addr{}
}

// forget drops addresses that have all their attempts back.
func (a *attempts) forget(now time.Time) {
	for from, left := range a.all {
		if left.TokensAt(now) >= burst {
			delete(a.all, from)
		}
	}
}
