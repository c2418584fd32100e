package httpkey

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/pool"
)

const (
	expiresHeader   = "Idempotency-Expires"
	replayedHeader  = "Idempotent-Replayed"
	firstSentHeader = "Idempotency-First-Sent"
)

// A Guard makes handlers retry-safe. It is safe for concurrent use.
type Guard struct {
	base    *retrysafe.Engine // as New was given it
	engine  *retrysafe.Engine // under this guard's policy
	policy  retrysafe.Policy
	scope   ScopeFunc
	o       Options
	fields  fields
	stored  map[string]bool // canonical names of the response headers that are stored
	kept    []string        // canonical names of the request headers that are stored, in order
	limits  *limiter
	counts  *counts
	dates   *dates
	wakeups *wakeups
	pool    *pool.Of[scratch]
}

// scratch holds the buffers of one request, and what its fingerprint was computed of,
// until it is decided what the request gets.
type scratch struct {
	fp   fingerprinter
	body []byte

	in     intent
	fields *fields
	sum    retrysafe.Fingerprint
	// refingerprint is [scratch.sumAs]. It is made with the scratch, because making it
	// allocates.
	refingerprint func(stored retrysafe.Fingerprint) (retrysafe.Fingerprint, bool)
}

func newScratch() *scratch {
	s := new(scratch)
	s.refingerprint = s.sumAs
	return s
}

// fingerprint returns the fingerprint of a request.
func (s *scratch) fingerprint(in intent, fs *fields) retrysafe.Fingerprint {
	s.in, s.fields = in, fs
	s.sum = s.fp.sum(&s.in, fs)
	return s.sum
}

// sumAs returns the fingerprint of the same request in the way that a stored one was
// computed; see [retrysafe.Call.Refingerprint].
func (s *scratch) sumAs(stored retrysafe.Fingerprint) (retrysafe.Fingerprint, bool) {
	if sameWay(stored, s.sum) {
		return s.sum, true
	}
	return s.fp.sumAs(stored, &s.in, s.fields)
}

// release returns s to the pool. It keeps nothing of the request but the memory of its
// buffers. No call with its refingerprint may be under way.
func (g *Guard) release(s *scratch) {
	s.in, s.fields = intent{}, nil
	g.pool.Put(s)
}

// New returns a guard. The engine decides about keys, the scope says which tenant owns
// a key; neither can be left out. Opts may be nil.
func New(e *retrysafe.Engine, scope ScopeFunc, opts *Options) (*Guard, error) {
	if e == nil || scope == nil {
		return nil, errors.New("httpkey: New needs an engine and a scope: without a scope one caller could get another's answers")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	g := &Guard{base: e, scope: scope, counts: new(counts), dates: new(dates), wakeups: new(wakeups)}
	g.pool = &pool.Of[scratch]{New: newScratch}
	return g.with(o)
}

// With returns a guard for other routes over the same engine. Change is given a copy of
// the options. Both guards share the counters, and the rate limits unless change sets
// others.
func (g *Guard) With(change func(*Options)) (*Guard, error) {
	o := g.o
	change(&o)
	return g.with(o)
}

func (g *Guard) with(o Options) (*Guard, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	n := *g
	var err error
	if n.engine, err = g.engineFor(&o); err != nil {
		return nil, fmt.Errorf("httpkey: %w", err)
	}
	n.policy = n.engine.Policy()
	if n.fields, err = newFields(Fields{Include: o.Include, Exclude: o.Exclude, Headers: o.FingerprintHeaders}); err != nil {
		return nil, fmt.Errorf("httpkey: Include, Exclude: %w", err)
	}
	n.fields.secrets = o.Secrets
	for _, c := range o.FormerFields {
		former, err := newFields(c)
		if err != nil {
			return nil, fmt.Errorf("httpkey: FormerFields: %w", err)
		}
		n.fields.former = append(n.fields.former, former)
	}
	n.stored = make(map[string]bool)
	for _, name := range slices.Concat(replayed, o.ReplayHeaders) {
		n.stored[http.CanonicalHeaderKey(name)] = true
	}
	if n.kept, err = keptHeaders(&o, n.engine.Store()); err != nil {
		return nil, err
	}
	if g.limits == nil || o.Limits != g.o.Limits || o.Observe != g.o.Observe {
		if n.limits, err = newLimiter(o.Limits, n.engine.Store()); err != nil {
			return nil, err
		}
	}
	for _, caveat := range n.policy.Caveats() {
		o.Logger.Warn("retrysafe: policy has a caveat", "caveat", caveat)
	}
	if caveat := o.notExecutedCaveat(n.policy.Effects); caveat != "" {
		o.Logger.Debug("retrysafe: policy has a caveat", "caveat", caveat) // it holds by default, so it is no warning
	}
	n.o = o
	return &n, nil
}

// engineFor returns the engine under the guard's policy, which inherits from the base
// engine's what the options leave unset.
func (g *Guard) engineFor(o *Options) (*retrysafe.Engine, error) {
	var p retrysafe.Policy
	if o.Policy != nil {
		p = *o.Policy
	}
	if o.Observe {
		p.InFlight = retrysafe.InFlightConflict // in observe mode no request waits
	}
	if o.Tx != nil {
		if p.Effects = cmp.Or(p.Effects, retrysafe.EffectsInTx); p.Effects != retrysafe.EffectsInTx {
			return nil, fmt.Errorf("option Tx: effects and answer commit together, and the policy's effects are %s; leave them out, or leave out Tx", p.Effects)
		}
	}
	e, err := g.base.With(p)
	if err == nil && e.Policy().OnFailure == retrysafe.FailureDefault {
		p.OnFailure = o.Profile.OnFailure
		e, err = g.base.With(p)
	}
	if err == nil && o.Observe && e.Policy().Effects == retrysafe.EffectsInTx { // an observed handler commits without its answer
		e, err = e.With(retrysafe.Policy{Effects: retrysafe.EffectsUnprotected, OnFailure: e.Policy().OnFailure})
	}
	return e, err
}

// topLevel returns the names in pointers to top-level members, for forms.
func topLevel(pointers []string) map[string]bool {
	var names map[string]bool // nil if there is no such pointer: then every field counts
	for _, p := range pointers {
		if name, ok := strings.CutPrefix(p, "/"); ok && !strings.Contains(name, "/") {
			if names == nil {
				names = make(map[string]bool)
			}
			names[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)] = true
		}
	}
	return names
}

// Handler guards next. It is a middleware.
func (g *Guard) Handler(next http.Handler) http.Handler {
	if g.o.Tx != nil {
		return g.handlerInTx(next)
	}
	return &guarded{g, next}
}

// guarded is a handler behind a guard.
type guarded struct {
	*Guard
	next http.Handler
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(auditKey{}) != nil {
		g.answerAudit(w, r)
		return
	}
	if !slices.Contains(g.o.Methods, r.Method) {
		switch overrides := g.overrides(r); {
		case overrides && !g.o.Observe:
			g.refuse(w, r, "", refusal{problem: methodOverride})
			g.reportDisposition(r, retrysafe.Ref{}, methodOverride.code)
			return
		case overrides:
			g.report(methodOverride.code, r, "", false)
		}
		g.next.ServeHTTP(w, r)
		return
	}
	if g.o.Observe {
		g.watch(w, r)
		return
	}
	s := g.pool.Get()
	c, body, re := g.call(r, s)
	if re != nil {
		g.release(s)
		g.refuse(w, r, c.Key, *re)
		g.reportDisposition(r, c.Ref, re.code)
		return
	}
	if c.Key == "" { // optional and absent, or guarded already
		g.release(s)
		g.next.ServeHTTP(w, r)
		g.reportDisposition(r, c.Ref, "")
		return
	}
	var request []byte
	if g.o.Async {
		request = g.encodeRequest(r, body)
	}
	run, out, err := g.begin(r, &c, request)
	switch {
	case run != nil:
		s.body = nil // the handler may keep it
		g.release(s)
		g.execute(w, r, run, body, g.next)
		g.reportDisposition(r, c.Ref, DispositionRan)
		return
	case out != nil:
		g.replay(w, r, out)
		g.reportDisposition(r, c.Ref, DispositionReplay)
	case g.o.Async && underWay(err):
		if errors.Is(err, retrysafe.ErrAccepted) {
			g.wakeups.notify()
		}
		g.write(w, g.explain(r, c.Key, err)) // a 202 is not reported as a refusal
		g.reportDisposition(r, c.Ref, stillRunning.code)
	default:
		re := g.explain(r, c.Key, err)
		g.refuse(w, r, c.Key, re)
		g.reportDisposition(r, c.Ref, re.code)
	}
	g.release(s)
}
