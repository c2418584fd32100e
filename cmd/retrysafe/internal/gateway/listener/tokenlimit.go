package listener

import (
	"net/netip"
	"sync"
	"time"
)

// A tokenLimit is a rate limit of wrong tokens per address: burst at once, and one more
// in each refill. The token of an address over the limit is not compared, so that a
// token cannot be guessed; other addresses are not affected.
type tokenLimit struct {
	mu  sync.Mutex
	all map[netip.Addr]time.Time // when the address has all its attempts back
}

const (
	burst  = 10
	refill = time.Second
	// maxAddresses bounds the memory. Beyond it new addresses share one entry.
	maxAddresses = 1024
)

func newTokenLimit() *tokenLimit { return &tokenLimit{all: make(map[netip.Addr]time.Time)} }

// check classifies the sender of a right or wrong token, and counts a wrong one.
func (a *tokenLimit) check(from netip.Addr, right bool) caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= maxAddresses {
		a.forget()
	}
	from = a.account(from)
	now := time.Now()
	back := a.all[from]
	switch {
	case back.Sub(now) > (burst-1)*refill:
		return slowed
	case right:
		return operator
	}
	if back.Before(now) {
		back = now
	}
	a.all[from] = back.Add(refill)
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
func (a *tokenLimit) forget() {
	now := time.Now()
	for from, back := range a.all {
		if !back.After(now) {
			delete(a.all, from)
		}
	}
}
