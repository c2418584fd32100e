package httpkey

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// In async mode a request is read, checked and fingerprinted as usual. Then it is
// stored for a worker instead of run.

// keptAlways are the request headers that are stored by default: those that describe
// the body, the wanted answer and its conditions, and those that correlate logs.
var keptAlways = []string{
	"Content-Type", "Content-Language", "Content-Disposition", "Accept", "Accept-Language", "Prefer",
	"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	"Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id",
}

// checkAsync returns an error if the options ask for something that stored requests
// cannot have.
func (o *Options) checkAsync() error {
	if o.Async && o.Stream == StreamThrough {
		return errors.New("httpkey: Async: Stream is Through, but no client is connected when a worker runs the request")
	}
	for _, name := range o.KeepHeaders {
		switch {
		case isCredential(name):
			return fmt.Errorf("httpkey: KeepHeaders: %s looks like a credential; name it in KeepCredentials", name)
		case headerkind.IsPerExchange(http.CanonicalHeaderKey(name)):
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
		if sealing, ok := s.(retrysafe.Sealer); !ok || !sealing.Sealed() {
			return nil, errors.New("httpkey: KeepCredentials: this store would keep them in plaintext; wrap it in store/sealed")
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

// isCredential reports whether a header authenticates the caller, or by its name may do
// so.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	for _, part := range [...]string{"authorization", "authentication", "auth-", "cookie", "token", "secret", "password", "credential", "api-key", "apikey", "session"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasSuffix(name, "-auth")
}

// accepts reports whether a retry gets a 202 while an attempt runs.
func (g *Guard) accepts() bool { return g.o.Async || g.policy.InFlight == retrysafe.InFlightAccept }

// underWay reports whether a call was refused because the request waits for a worker or
// runs.
func underWay(err error) bool {
	return errors.Is(err, retrysafe.ErrAccepted) || errors.Is(err, retrysafe.ErrInFlight)
}

// Caller returns the owner of a key that a guard has stored: the tenant, and the
// principal where [Options.Bind] names one.
func Caller(ref retrysafe.Ref) (tenant, principal string) {
	parts := strings.Split(ref.Scope, scopePart)
	for i := 1; i+1 < len(parts); i += 2 {
		if parts[i] == "by" {
			principal = parts[i+1]
		}
	}
	return parts[0], principal
}

// wakeups notify the workers of this process that a request was stored.
type wakeups struct {
	mu  sync.Mutex
	all map[chan struct{}]bool
}

// subscribe returns a new channel. It holds one notification until the worker receives
// it.
func (w *wakeups) subscribe() chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[chan struct{}]bool)
	}
	w.all[c] = true
	return c
}

func (w *wakeups) unsubscribe(c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, c)
}

func (w *wakeups) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		select {
		case c <- struct{}{}:
		default: // it is notified already
		}
	}
}
