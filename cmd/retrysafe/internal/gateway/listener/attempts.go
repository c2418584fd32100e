package listener

import (
	"net/netip"
	"sync"
	"time"
)

// Attempts bound how many wrong tokens an address may show: so many at once, and one
// more in each refill. An address that is over it is not heard, so that nobody learns
// a token by trying; other addresses do not notice.
type attempts struct {
	mu  sync.Mutex
	all map[netip.Addr]time.Time // when the address has all its attempts back
}

const (
	burst  = 10
	refill = time.Second
	// maxAddresses bounds the memory. Beyond it those who are new share one account.
	maxAddresses = 1024
)

func newAttempts() *attempts { return &attempts{all: make(map[netip.Addr]time.Time)} }

// judge says who shows a right or wrong token, and counts it if it is wrong.
func (a *attempts) judge(from netip.Addr, right bool) caller {
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
func (a *attempts) account(from netip.Addr) netip.Addr {
	if _, known := a.all[from]; known || len(a.all) < maxAddresses {
		return from
	}
	return netip.Addr{}
}

// forget drops addresses that have all their attempts back.
func (a *attempts) forget() {
	now := time.Now()
	for from, back := range a.all {
		if !back.After(now) {
			delete(a.all, from)
		}
	}
}
