package httpkey

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

const (
	expiresHeader   = "Idempotency-Expires"
	replayedHeader  = "Idempotent-Replayed"
	firstSentHeader = "Idempotency-First-Sent"
)

// A Guard makes handlers retry-safe. It is safe for concurrent use.
type Guard struct {
	base   *retrysafe.Engine // as it was given
	engine *retrysafe.Engine // under this guard's policy
	policy retrysafe.Policy
	scope  ScopeFunc
	o      Options
	fields fields
	stored map[string]bool // canonical names of the response headers that are stored
	kept   []string        // canonical names of the request headers that are stored, in order
	limits *limiter
	counts *counts
	dates  *dates
	bells  *bells
	pool   *sync.Pool // of *scratch
}

// scratch is memory that a request needs until it is known what it gets.
type scratch struct {
	fp   fingerprinter
	body []byte
}

// New returns a guard. The engine says what happens to keys, the scope whose
// they are; neither can be left out. Opts may be nil.
func New(e *retrysafe.Engine, scope ScopeFunc, opts *Options) (*Guard, error) {
	if e == nil || scope == nil {
		return nil, errors.New("httpkey: New needs an engine and a scope: without a scope one caller could get another's answers")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	g := &Guard{base: e, scope: scope, counts: new(counts), dates: new(dates), bells: new(bells)}
	g.pool = &sync.Pool{New: func() any { return new(scratch) }}
	return g.with(o)
}

// With returns a guard for other routes over the same engine: change is given a
// copy of the options. Counters, and rate limits that are not changed, are
// shared.
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
	p := g.base.Policy()
	if o.Policy != nil {
		p = *o.Policy
	}
	if p.OnFailure == retrysafe.FailureDefault {
		p.OnFailure = o.Profile.OnFailure
	}
	if o.Observe {
		p.InFlight = retrysafe.InFlightConflict // nobody waits for what is only watched
	}
	var err error
	if n.engine, err = g.base.With(p); err != nil {
		return nil, fmt.Errorf("httpkey: %w", err)
	}
	n.policy = n.engine.Policy()
	filter, err := o.filters()
	if err != nil {
		return nil, err
	}
	n.fields = fields{filter: filter, include: topLevel(o.Include), exclude: topLevel(o.Exclude), secrets: o.Secrets}
	for _, name := range o.FingerprintHeaders {
		n.fields.headers = append(n.fields.headers, http.CanonicalHeaderKey(name))
	}
	slices.Sort(n.fields.headers)
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
	for _, caveat := range p.Caveats() {
		o.Logger.Warn("retrysafe: policy has a caveat", "caveat", caveat)
	}
	n.o = o
	return &n, nil
}

// topLevel returns the names of pointers to top-level members, for forms.
func topLevel(pointers []string) map[string]bool {
	var names map[string]bool // nil if there is no such pointer: no choice rather than an empty one
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

// Handler guards next. Its form is that of any middleware.
func (g *Guard) Handler(next http.Handler) http.Handler { return &guarded{g, next} }

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
			g.tell(r, retrysafe.Ref{}, methodOverride.code)
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
	s := g.pool.Get().(*scratch)
	c, body, re := g.call(r, s)
	if re != nil {
		g.pool.Put(s)
		g.refuse(w, r, c.Key, *re)
		g.tell(r, c.Ref, re.code)
		return
	}
	if c.Key == "" { // optional and absent, or guarded already
		g.pool.Put(s)
		g.next.ServeHTTP(w, r)
		g.tell(r, c.Ref, "")
		return
	}
	var request []byte
	if g.o.Async {
		request = g.keep(r, body)
	}
	run, out, err := g.begin(r, &c, request)
	switch {
	case run != nil:
		s.body = nil // the handler has it
		g.pool.Put(s)
		g.execute(w, r, run, body, g.next)
		g.tell(r, c.Ref, FateRan)
		return
	case out != nil:
		g.replay(w, r, out)
		g.tell(r, c.Ref, FateReplay)
	case g.o.Async && underWay(err):
		if errors.Is(err, retrysafe.ErrAccepted) {
			g.bells.ring()
		}
		g.write(w, g.explain(r, c.Key, err)) // good news: it is not reported as a refusal
		g.tell(r, c.Ref, stillRunning.code)
	default:
		re := g.explain(r, c.Key, err)
		g.refuse(w, r, c.Key, re)
		g.tell(r, c.Ref, re.code)
	}
	g.pool.Put(s)
}

// call reads a request as far as the engine needs: whose key it is, what it
// asks for. The returned body is s's memory. A refusal reserves nothing.
func (g *Guard) call(r *http.Request, s *scratch) (c retrysafe.Call, body []byte, re *refusal) {
	if g.overrides(r) {
		return c, nil, &refusal{problem: methodOverride}
	}
	lines := r.Header[g.o.Header]
	if len(lines) == 0 {
		if g.o.Optional {
			return c, nil, nil
		}
		return c, nil, &refusal{problem: keyMissing}
	}
	if len(lines) > 1 {
		return c, nil, &refusal{problem: keyMalformed, found: "There is more than one header line."}
	}
	key, err := parseKey(lines[0], g.o.Profile.Opaque, g.o.Strict)
	if err != nil {
		return c, nil, &refusal{problem: keyMalformed, found: "The key was not accepted: " + err.Error() + "."}
	}
	if re := g.scrutinise(r, key); re != nil {
		return c, nil, re
	}
	if re := g.checkFirstSent(r); re != nil {
		return c, nil, re
	}
	c.Key = key
	c.Operation = g.operation(r)
	if c.Scope, err = g.scopeOf(r, c.Operation); err != nil {
		g.o.Logger.Warn("retrysafe: caller is not identified", "operation", c.Operation, "error", err)
		return c, nil, &refusal{problem: callerUnidentified}
	}
	if len(c.Operation) > maxOperation {
		c.Operation = strings.ToValidUTF8(c.Operation[:maxOperation], "")
	}
	if run, ok := retrysafe.FromContext(r.Context()); ok && run.Ref() == c.Ref {
		return retrysafe.Call{}, nil, nil // an outer guard holds this very key already
	}
	if body, err = g.readBody(r, s.body); err != nil {
		return c, nil, g.refuseBody(err)
	}
	s.body = body
	c.Fingerprint = s.fp.sum(r, body, c.Scope, &g.fields)
	if len(g.fields.secrets) > 0 {
		c.Refingerprint = g.refingerprint(r, body, c.Scope, s)
	}
	return c, body, nil
}

// refuseBody says what was wrong with a body.
func (g *Guard) refuseBody(err error) *refusal {
	var outer *http.MaxBytesError
	switch {
	case errors.As(err, &outer):
		return &refusal{problem: bodyTooLarge, found: fmt.Sprintf("The limit is %d bytes.", outer.Limit)}
	case errors.Is(err, errTooLarge):
		return &refusal{problem: bodyTooLarge, found: fmt.Sprintf("The limit is %d bytes.", g.o.MaxRequest)}
	case errors.Is(err, errEncoding):
		return &refusal{problem: encodingRefused}
	default:
		return &refusal{problem: bodyUnreadable}
	}
}

// refingerprint returns the fingerprint of a request under stored algorithms.
func (g *Guard) refingerprint(r *http.Request, body []byte, scope string, s *scratch) func(uint8) (retrysafe.Fingerprint, bool) {
	return func(alg uint8) (retrysafe.Fingerprint, bool) { return s.fp.sumAs(alg, r, body, scope, &g.fields) }
}

// overrides reports whether a request asks to be taken for a guarded method by
// a header, or by another case of its own, which would let it slip past the guard
// or past its fingerprint.
func (g *Guard) overrides(r *http.Request) bool {
	if method := strings.ToUpper(r.Method); method != r.Method && slices.Contains(g.o.Methods, method) {
		return true
	}
	for _, name := range [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		for _, method := range r.Header[name] {
			if slices.Contains(g.o.Methods, r.Method) || slices.Contains(g.o.Methods, strings.ToUpper(strings.TrimSpace(method))) {
				return true
			}
		}
	}
	return false
}

// scrutinise looks for keys that are easy to guess or tell of a person.
func (g *Guard) scrutinise(r *http.Request, key string) *refusal {
	if g.o.ShortKeys != Ignore && len(key) < g.o.MinKeyLength {
		if g.o.ShortKeys == Refuse {
			return &refusal{problem: keyTooShort, found: fmt.Sprintf("It has %d characters; at least %d are needed.", len(key), g.o.MinKeyLength)}
		}
		g.warn(r, key, keyTooShort)
	}
	if g.o.PersonalData != Ignore && looksPersonal(key) {
		if g.o.PersonalData == Refuse {
			return &refusal{problem: keyPersonal}
		}
		g.warn(r, key, keyPersonal)
	}
	return nil
}

// checkFirstSent refuses a request whose first attempt is older than answers
// are kept.
func (g *Guard) checkFirstSent(r *http.Request) *refusal {
	if !g.o.FirstSent {
		return nil
	}
	lines := r.Header[firstSentHeader]
	if len(lines) == 0 {
		return nil
	}
	sent, err := http.ParseTime(lines[0])
	switch {
	case err != nil || len(lines) > 1:
		return &refusal{problem: firstSentMalformed}
	case time.Since(sent) > g.policy.Retention:
		return &refusal{problem: firstSentStale}
	}
	return nil
}

func (g *Guard) operation(r *http.Request) string {
	switch {
	case g.o.Operation != nil:
		return g.o.Operation(r)
	case r.Pattern == "":
		return r.Method + " " + r.URL.EscapedPath() // visible ASCII, which any store keeps
	case strings.HasPrefix(r.Pattern, r.Method):
		return r.Pattern
	default:
		return r.Method + " " + r.Pattern
	}
}

// scopePart separates the parts of a scope. It cannot occur inside one.
const scopePart = "\x1f"

const (
	maxScope     = 1024 // as long as the engine takes it
	maxOperation = 256  // a path can be as long as its sender likes; this much of it is kept
)

var errNoScope = errors.New("the scope is empty, too long or contains a control character")

// scopeOf returns whose key it is: the tenant, and where the options say so the
// operation and the principal.
func (g *Guard) scopeOf(r *http.Request, operation string) (string, error) {
	scope, err := part(g.scope, r)
	if err != nil {
		return "", err
	}
	if g.o.PerOperation {
		if len(operation) > maxOperation || strings.ContainsFunc(operation, isControl) {
			sum := sha256.Sum256([]byte(operation))
			operation = "sha256 " + hex.EncodeToString(sum[:])
		}
		scope += scopePart + "op" + scopePart + operation
	}
	if g.o.Bind != nil {
		principal, err := part(g.o.Bind, r)
		if err != nil {
			return "", err
		}
		scope += scopePart + "by" + scopePart + principal
	}
	if len(scope) > maxScope {
		return "", errNoScope
	}
	return scope, nil
}

// part returns one part of a scope. It has no control character: none can look
// like several parts, nor like a scope of retrysafe's own, which begins with a
// zero byte.
func part(f ScopeFunc, r *http.Request) (string, error) {
	s, err := f(r)
	if err == nil && (s == "" || strings.ContainsFunc(s, isControl)) {
		err = errNoScope
	}
	return s, err
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }
