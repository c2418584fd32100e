package tenant

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
)

// Header returns a Func that takes the tenant from a header. It believes only peers
// of the TCP connection in one of the trusted prefixes, and refuses all others, also
// those who send no such header; with no prefix it refuses everybody. What a proxy
// says of addresses further away, as X-Forwarded-For does, is not looked at.
//
// The header is one line of 1 to 256 visible ASCII characters without a comma,
// because that is how proxies join two lines.
func Header(name string, trusted []netip.Prefix) Func {
	name = http.CanonicalHeaderKey(name)
	trusted = plain(trusted)
	missing := fmt.Errorf("%w: the proxy in front must set %s", ErrMissing, name)
	repeated := invalid(name + " must be set once")
	malformed := invalid(name + " must have 1 to " + strconv.Itoa(maxName) + " visible ASCII characters, without spaces and commas")
	scopes := newLabels("header:")
	return func(r *http.Request) (string, error) {
		if !comesFrom(r.RemoteAddr, trusted) {
			return "", ErrUntrusted
		}
		switch lines := r.Header[name]; {
		case len(lines) == 0:
			return "", missing
		case len(lines) > 1:
			return "", repeated
		case !isName(lines[0]):
			return "", malformed
		default:
			return scopes.of(lines[0]), nil
		}
	}
}

// isName reports whether s is visible, not too long, and one value.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && isVisible(s) && !strings.Contains(s, ",")
}

// comesFrom reports whether a peer's address is in one of the prefixes. A peer that
// is not an IP address is in none. Prefixes have no zones, so they mean all of them.
func comesFrom(peer string, prefixes []netip.Prefix) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap().WithZone("")
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// plain returns the prefixes with IPv4 addresses as such, also where they were
// written as IPv6, because that is how comesFrom compares them.
func plain(prefixes []netip.Prefix) []netip.Prefix {
	const mapped = 96 // bits before the IPv4 address
	all := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= mapped {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
		}
		all = append(all, p)
	}
	return all
}

// labels are texts with one prefix. Those that were asked for lately are kept, so
// that most requests need no memory of their own.
type labels struct {
	prefix string
	seed   maphash.Seed
	slots  [512]atomic.Pointer[string]
}

func newLabels(prefix string) *labels { return &labels{prefix: prefix, seed: maphash.MakeSeed()} }

// of returns the prefix and s. Two texts in one slot take turns.
func (l *labels) of(s string) string {
	slot := &l.slots[maphash.String(l.seed, s)%uint64(len(l.slots))]
	if kept := slot.Load(); kept != nil && (*kept)[len(l.prefix):] == s {
		return *kept
	}
	label := l.prefix + s
	slot.Store(&label)
	return label
}
