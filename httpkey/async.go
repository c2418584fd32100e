package httpkey

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/replayheader"
)

// Async mode: a request is read, checked and fingerprinted as ever, and then
// stored for a worker instead of run.

// keptAlways are the request headers that are stored by default: what the body is,
// what answer is wanted, under which condition, and what ties logs together.
var keptAlways = []string{
	"Content-Type", "Content-Language", "Content-Disposition", "Accept", "Accept-Language", "Prefer",
	"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	"Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id",
}

// checkAsync reports what the options ask for that cannot be had of stored requests.
func (o *Options) checkAsync() error {
	if o.Async && o.Stream == Through {
		return errors.New("httpkey: Async: Stream is Through, but nobody listens when the request runs")
	}
	for _, name := range o.KeepHeaders {
		switch {
		case isCredential(name):
			return fmt.Errorf("httpkey: KeepHeaders: %s looks like a credential; name it in KeepCredentials", name)
		case replayheader.Never(http.CanonicalHeaderKey(name)):
			return fmt.Errorf("httpkey: KeepHeaders: %s belongs to one exchange and is never stored", name)
		}
	}
	return nil
}

// keptHeaders returns the names of the request headers that are stored. Among
// them are credentials only if the options name them and the store encrypts.
func keptHeaders(o *Options, s retrysafe.Store) ([]string, error) {
	if !o.Async {
		return nil, nil
	}
	if len(o.KeepCredentials) > 0 {
		if sealing, ok := s.(interface{ Sealed() bool }); !ok || !sealing.Sealed() {
			return nil, errors.New("httpkey: KeepCredentials: this store would keep them as they are; put store/sealed before it")
		}
	}
	var names []string
	for _, name := range slices.Concat(keptAlways, o.KeepHeaders, o.FingerprintHeaders, []string{o.Header}) {
		if !isCredential(name) {
			names = append(names, http.CanonicalHeaderKey(name))
		}
	}
	for _, name := range o.KeepCredentials {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// isCredential reports whether a header is, or by its name may be, what proves who
// the caller is.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	for _, part := range [...]string{"authorization", "authentication", "auth-", "cookie", "token", "secret", "password", "credential", "api-key", "apikey", "session"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasSuffix(name, "-auth")
}

// accepts reports whether a retry is told 202 while an attempt runs.
func (g *Guard) accepts() bool { return g.o.Async || g.policy.InFlight == retrysafe.InFlightAccept }

// underWay reports whether a call was refused because it waits for a worker or
// has one.
func underWay(err error) bool {
	return errors.Is(err, retrysafe.ErrAccepted) || errors.Is(err, retrysafe.ErrInFlight)
}

// Caller returns whose key a guard has stored: the tenant, and the principal
// where [Options.Bind] names one.
func Caller(ref retrysafe.Ref) (tenant, principal string) {
	parts := strings.Split(ref.Scope, scopePart)
	for i := 1; i+1 < len(parts); i += 2 {
		if parts[i] == "by" {
			principal = parts[i+1]
		}
	}
	return parts[0], principal
}

// bells wake the workers of this process when a request was stored.
type bells struct {
	mu  sync.Mutex
	all map[chan struct{}]bool
}

// hang returns a new bell. One ring is remembered until it is heard.
func (b *bells) hang() chan struct{} {
	bell := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = make(map[chan struct{}]bool)
	}
	b.all[bell] = true
	return bell
}

func (b *bells) take(bell chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, bell)
}

func (b *bells) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for bell := range b.all {
		select {
		case bell <- struct{}{}:
		default: // it rings already
		}
	}
}
