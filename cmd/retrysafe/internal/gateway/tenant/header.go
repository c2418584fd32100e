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

// Header returns a Func that takes the tenant from a header. It believes only peers of
// the TCP connection in one of the trusted prefixes, and refuses all others, also those
// that send no such header; with no prefix it refuses every request. Headers about
// earlier hops, such as X-Forwarded-For, are ignored.
//
// The header is one line of 1 to 256 visible ASCII characters without a comma,
// because that is how proxies join two lines.
func Header(name string, trusted []netip.Prefix) Func {
	name = http.CanonicalHeaderKey(name)
	proxies := TrustedProxies(trusted)
	missing := fmt.Errorf("%w: the proxy in front must set %s", ErrMissing, name)
	repeated := invalid(name + " must be set once")
	malformed := invalid(name + " must have 1 to " + strconv.Itoa(maxName) + " visible ASCII characters, without spaces and commas")
	scopes := newLabels("header:")
	return func(r *http.Request) (string, error) {
		if !proxies.Include(r.RemoteAddr) {
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
