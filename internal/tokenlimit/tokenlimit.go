// Package tokenlimit limits how many wrong tokens an address may show.
package tokenlimit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A Limit is a rate limit of wrong tokens per address: burst at once, and one more in each
// [Refill]. It bounds what strangers write to the log and keeps scanners off. It is never
// in the way of the right token: a stranger behind the same address, or a scraper with an
// old one, could otherwise lock the operators out. Guessing is hopeless without it,
// because a token has at least 16 characters.
type Limit struct {
	mu  sync.Mutex
	all map[netip.Addr]*rate.Limiter // none: the address has all its attempts
}

// Refill is after how long an address that has used all its attempts has another one.
const Refill = time.Second

const (
	burst = 10
	// maxAddresses bounds the memory. Beyond it new addresses share one entry.
	maxAddresses = 1024
)

// New returns a limit that has counted nothing.
func New() *Limit { return &Limit{all: make(map[netip.Addr]*rate.Limiter)} }

// Wrong counts a wrong token. It reports false if the address has shown too many.
func (l *Limit) Wrong(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.all) >= maxAddresses {
		l.forget(now)
	}
	from = l.account(from)
	left := l.all[from]
	if left == nil {
		left = rate.NewLimiter(rate.Every(Refill), burst)
		l.all[from] = left
	}
	return left.AllowN(now, 1)
}

// account returns where an address is counted.
func (l *Limit) account(from netip.Addr) netip.Addr {
	if _, known := l.all[from]; known || len(l.all) < maxAddresses {
		return from
	}
	return netip.Addr{}
}

// forget drops addresses that have all their attempts back.
func (l *Limit) forget(now time.Time) {
	for from, left := range l.all {
		if left.TokensAt(now) >= burst {
			delete(l.all, from)
		}
	}
}

// AddressOf returns the address that a remote end counts as, of which the text is an
// address and a port: an IPv4 address, or the /64 network of an IPv6 address, because one
// host has many of those. It is the zero address if the text is none, as it is for a unix
// socket.
func AddressOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}
