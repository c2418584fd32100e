package httpkey

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Limits bound what one tenant may do. Zero means no limit. Neither a replay nor a
// further attempt under a known key counts against the limits of new keys.
type Limits struct {
	// NewKeys is how many new keys per second a tenant may use, on average.
	NewKeys float64
	// NewKeysBurst is how many it may bring at once. Default: twice NewKeys, rounded
	// up.
	NewKeysBurst int
	// Lookups is how many requests per second it may send under any keys. It protects
	// the store, so it should be generous.
	Lookups float64
	// ActiveKeys is how many keys are kept for a tenant at most. Where PerOperation or
	// Bind narrow the scope, it holds for each such scope. The store must be able to
	// count them; the count may lag by a second.
	ActiveKeys int
}

func (l *Limits) check() error {
	if !(l.NewKeys >= 0) || l.NewKeysBurst < 0 || !(l.Lookups >= 0) || l.ActiveKeys < 0 { // so that NaN is none either
		return errors.New("httpkey: Limits: a limit is negative, or no number")
	}
	if l.NewKeysBurst > 0 && l.NewKeys == 0 {
		return errors.New("httpkey: Limits: NewKeysBurst without NewKeys limits nothing")
	}
	return nil
}

var (
	errTooManyKeys    = errors.New("too many new keys")
	errTooManyActive  = errors.New("too many active keys")
	errTooManyLookups = errors.New("too many look-ups")
)

// begin begins the call in the engine, within the tenant's limits. If there is a
// request, it is stored for a worker instead of run.
//
// Whether a key is new is known only after the store was asked. So a token is taken
// first, and returned if the key was known. Without a token the store is only read, and
// a known key still gets its answer or its next attempt.
func (g *Guard) begin(r *http.Request, c *retrysafe.Call, request []byte) (*retrysafe.Execution, *retrysafe.Outcome, error) {
	if g.unlimited() {
		return g.start(r.Context(), c, request)
	}
	return g.beginLimited(r.Context(), c, request)
}

// unlimited reports whether a call begins without a look at any limit: there is none, or
// the store does not answer and the engine refuses the call.
func (g *Guard) unlimited() bool {
	return g.limits.off() && g.o.Busy == nil || !g.engine.Healthy()
}

func (g *Guard) beginLimited(ctx context.Context, c *retrysafe.Call, request []byte) (*retrysafe.Execution, *retrysafe.Outcome, error) {
	var run *retrysafe.Execution
	out, err := g.limited(ctx, c, request != nil, func() (*retrysafe.Outcome, bool, error) {
		known := request != nil && g.knows(ctx, c.Ref) // the result of Accept does not say so
		var out *retrysafe.Outcome
		var err error
		run, out, err = g.start(ctx, c, request)
		return out, run != nil && run.Attempt() == 1 || !known && errors.Is(err, retrysafe.ErrAccepted), err
	})
	return run, out, err
}

// limited calls start within the tenant's limits. Start begins the call in the engine,
// and reports whether the call has brought a new key.
func (g *Guard) limited(ctx context.Context, c *retrysafe.Call, later bool, start func() (*retrysafe.Outcome, bool, error)) (*retrysafe.Outcome, error) {
	tenant, _, _ := strings.Cut(c.Scope, scopePart) // the limits hold for the tenant, not for each operation
	if wait, ok := g.limits.lookups.take(tenant); !ok {
		return nil, &retrysafe.RefusedError{Err: errTooManyLookups, RetryAfter: wait}
	}
	if busy := g.busy(c.Ref, later); busy != nil {
		out, err := g.engine.Peek(ctx, *c)
		if errors.Is(err, retrysafe.ErrNotFound) {
			err = busy
		}
		return out, err
	}
	if limited := g.limits.admit(ctx, tenant, c.Scope); limited != nil {
		out, err := g.engine.Peek(ctx, *c)
		if !errors.Is(err, retrysafe.ErrNotFound) {
			return out, err
		}
		if !g.continues(ctx, c.Ref) {
			return nil, limited
		}
		out, _, err = start()
		return out, err
	}
	out, isNew, err := start()
	if isNew {
		g.limits.active.grew(c.Scope)
	} else {
		g.limits.newKeys.giveBack(tenant)
	}
	return out, err
}

// busy returns an error if [Options.Busy] refuses a call that would run now.
func (g *Guard) busy(ref retrysafe.Ref, later bool) error {
	if g.o.Busy == nil || later {
		return nil
	}
	if p := g.o.Busy(ref); p != nil {
		return &busyError{p}
	}
	return nil
}

// start begins the call in the engine.
func (g *Guard) start(ctx context.Context, c *retrysafe.Call, request []byte) (*retrysafe.Execution, *retrysafe.Outcome, error) {
	if request == nil {
		return g.engine.Begin(ctx, *c)
	}
	out, err := g.engine.Accept(ctx, *c, request)
	return nil, out, err
}

// knows reports whether there is a record under the key.
func (g *Guard) knows(ctx context.Context, ref retrysafe.Ref) bool {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	_, err := g.engine.Store().Load(ctx, ref)
	return err == nil
}

// continues reports whether a call that would run is a further attempt of a known
// operation, rather than a new one under a new or expired key.
func (g *Guard) continues(ctx context.Context, ref retrysafe.Ref) bool {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	rec, err := g.engine.Store().Load(ctx, ref)
	if err != nil {
		return false
	}
	switch rec.State {
	case retrysafe.StateRetryable:
		return !rec.Due()
	case retrysafe.StateInProgress, retrysafe.StateAccepted:
		return true
	default:
		return false
	}
}

// limiter holds the limits of all scopes.
type limiter struct {
	newKeys *buckets
	lookups *buckets
	active  *activeKeys
}

func newLimiter(l Limits, s retrysafe.Store) (*limiter, error) {
	lim := &limiter{
		newKeys: newBuckets(l.NewKeys, cmp.Or(l.NewKeysBurst, twice(l.NewKeys))),
		lookups: newBuckets(l.Lookups, twice(l.Lookups)),
	}
	if l.ActiveKeys > 0 {
		counter, ok := s.(retrysafe.Counter)
		if !ok {
			return nil, errors.New("httpkey: Limits.ActiveKeys: this store cannot count keys")
		}
		lim.active = &activeKeys{most: l.ActiveKeys, counter: counter, scopes: make(map[string]*activeCount)}
	}
	return lim, nil
}

func (l *limiter) off() bool { return l.newKeys == nil && l.lookups == nil && l.active == nil }

// admit charges a new key to the tenant's limits, or returns the error of the limit
// that is reached.
func (l *limiter) admit(ctx context.Context, tenant, scope string) error {
	if full, err := l.active.full(ctx, scope); err != nil {
		return &retrysafe.RefusedError{Err: retrysafe.ErrUnavailable, RetryAfter: time.Second}
	} else if full {
		return &retrysafe.RefusedError{Err: errTooManyActive, RetryAfter: time.Minute}
	}
	if wait, ok := l.newKeys.take(tenant); !ok {
		return &retrysafe.RefusedError{Err: errTooManyKeys, RetryAfter: wait}
	}
	return nil
}

// activeKeys caps how many keys each scope keeps. It asks the store at most once
// a second for each scope and counts its own in between. Nil caps nothing.
type activeKeys struct {
	most    int
	counter retrysafe.Counter

	mu     sync.Mutex
	scopes map[string]*activeCount
}

type activeCount struct {
	n  int
	at time.Time
}

const (
	recount = time.Second
	// countTimeout leaves time for the engine's own steps: when the store hangs, the
	// request must be refused within two seconds.
	countTimeout = 300 * time.Millisecond
)

func (a *activeKeys) full(ctx context.Context, scope string) (bool, error) {
	if a == nil {
		return false, nil
	}
	a.mu.Lock()
	known := a.scopes[scope]
	if known != nil && time.Since(known.at) < recount {
		defer a.mu.Unlock()
		return known.n >= a.most, nil
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	n, err := a.counter.Count(ctx, scope)
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.scopes) >= maxScopes {
		clear(a.scopes)
	}
	a.scopes[scope] = &activeCount{n, time.Now()}
	return n >= a.most, nil
}

func (a *activeKeys) grew(scope string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.scopes[scope]; known != nil {
		known.n++
	}
}
