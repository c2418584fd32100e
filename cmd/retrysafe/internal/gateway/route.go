package gateway

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/routing"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/pool"
)

// A route is how the requests of one pattern are treated.
type route struct {
	g       *Gateway
	name    string // the pattern, or DefaultRoute
	pattern string // empty for the default route
	methods []string
	set     config.Settings
	// keyHeader is the canonical name of the client's key.
	keyHeader   string
	policy      retrysafe.Policy // with its defaults
	lookedInto  bool             // unknown outcomes are, without an operator
	timeout     time.Duration
	maxResponse int64 // of a response that is held

	guard   *httpkey.Guard
	handler http.Handler // what the guard makes of the route; nil if it is off

	slots   slots
	latency latency
	warned  atomic.Bool
	calls   pool.Of[upstreamCall]
}

const defaultRequest, defaultResponse int64 = 1 << 20, 1 << 20 // as httpkey has them

// newRoute makes a route of a pattern, or without one the default route.
func (g *Gateway) newRoute(pattern string, s *config.Settings) (*route, error) {
	rt := &route{g: g, name: cmp.Or(pattern, DefaultRoute), pattern: pattern, methods: routing.Methods(pattern), set: *s}
	if s.Off {
		return rt, nil
	}
	if err := rt.check(); err != nil {
		return nil, err
	}
	rt.lookedInto = g.lookedInto(pattern)
	rt.slots.max = int64(s.Concurrency)
	rt.maxResponse = cmp.Or(s.MaxResponse, defaultResponse)
	rt.keyHeader = http.CanonicalHeaderKey(cmp.Or(s.KeyHeader, "Idempotency-Key"))
	rt.calls.New = func() *upstreamCall { return &upstreamCall{route: rt} }
	engine, err := g.engine.With(s.Policy)
	if err != nil {
		return nil, err
	}
	rt.policy = engine.Policy()
	// The attempt's own time must not run out first: then it would be set aside by
	// what its mode proves, while it may be certain that nothing was sent.
	rt.timeout = min(cmp.Or(s.Timeout, rt.policy.MaxRun), rt.policy.MaxRun-rt.policy.MaxRun/10)
	if rt.guard, err = g.guard.With(rt.options); err != nil {
		return nil, err
	}
	rt.handler = rt.guard.Handler(http.HandlerFunc(rt.run))
	return rt, nil
}

// mostHeld is what one request under the settings may come to hold.
func mostHeld(s *config.Settings) int64 {
	body := cmp.Or(s.MaxRequest, defaultRequest)
	if s.Decode {
		body *= 2
	}
	return requestCost + body + answerCopies*cmp.Or(s.MaxResponse, defaultResponse)
}

// check refuses what a gateway cannot do, wherever the configuration comes from.
func (rt *route) check() error {
	s := &rt.set
	switch {
	case s.Policy.Effects == retrysafe.EffectsInTx:
		return errors.New("effects: a gateway shares no transaction with its upstream")
	case s.Policy.Effects == retrysafe.EffectsKeyed && s.ForwardKey == "" && s.DeriveKey == "":
		return errors.New("effects: keyed needs forward_key or derive_key: without a key the upstream cannot recognise a repetition")
	case s.ForwardKey != "" && s.DeriveKey != "":
		return errors.New("forward_key and derive_key exclude each other")
	case s.BindPrincipal && rt.g.tenants.principal == nil:
		return errors.New("bind: nothing names a principal")
	case s.Timeout < 0 || s.Concurrency < 0 || s.MaxResponse < 0 || s.MaxRequest < 0:
		return errors.New("a limit is negative")
	}
	return nil
}

// options turns the settings into those of the route's guard.
func (rt *route) options(o *httpkey.Options) {
	s := &rt.set
	o.Policy = &s.Policy
	o.Methods = rt.methods
	o.Header = s.KeyHeader
	o.Optional, o.Observe, o.Async = !s.Required, s.Observe, s.Async
	o.Strict, o.MinKeyLength = s.Strict, s.MinKeyLength
	o.FirstSent, o.RequireFirstSent = s.FirstSent != config.FirstSentIgnored, s.FirstSent == config.FirstSentRequired
	o.ShortKeys, o.PersonalData = careOf(s.ShortKeys), careOf(s.PersonalData)
	o.PerOperation = s.PerOperation
	if s.BindPrincipal {
		o.Bind = rt.g.tenants.principal
	}
	o.MaxRequest, o.MaxResponse = s.MaxRequest, s.MaxResponse
	if s.Decode {
		o.Encoded = httpkey.EncodedDecodeGzip
	}
	if s.Stream {
		o.Stream = httpkey.StreamThrough
	}
	fields := rt.fields()
	o.Include, o.Exclude, o.FingerprintHeaders = fields.Include, fields.Exclude, fields.Headers
	o.ReplayHeaders = s.ReplayHeaders
	o.KeepHeaders, o.KeepCredentials = rt.kept(), s.KeepCredentials
	if rt.pattern == "" && s.Async {
		o.Operation = func(r *http.Request) string { return r.Method + " /" } // a worker knows routes, not paths
	}
	if !s.Observe && (s.Concurrency > 0 || rt.g.tenantSlots.max > 0) {
		o.Busy = rt.busy
	}
	o.Reconciled = rt.lookedInto
	o.StatusURL = rt.statusURL
	o.Disposition = noteFate
	o.Logger = slog.New(quietStart{rt.g.logger.With("route", rt.name).Handler(), &rt.g.made})
}

// fields returns what counts in the fingerprints of the route.
func (rt *route) fields() httpkey.Fields {
	s := &rt.set
	f := httpkey.Fields{Include: s.Include, Exclude: s.Exclude, Headers: s.FingerprintHeaders}
	if s.Policy.Effects == retrysafe.EffectsKeyed && s.ForwardKey != "" {
		// Quoted or not it is one key here, but maybe two to the upstream, to which a
		// retry must come under the very same.
		f.Headers = append(slices.Clone(f.Headers), rt.keyHeader)
	}
	return f
}

// kept returns the headers that are stored of a request that is run later. Those by
// which callers are told apart are among them: the service wants to know too.
func (rt *route) kept() []string {
	if !rt.set.Async {
		return rt.set.KeepHeaders
	}
	names := slices.Clone(rt.set.KeepHeaders)
	for _, name := range rt.g.tenants.names {
		has := func(other string) bool { return strings.EqualFold(name, other) }
		if !slices.ContainsFunc(names, has) && !slices.ContainsFunc(rt.set.KeepCredentials, has) {
			names = append(names, name)
		}
	}
	return names
}

func careOf(word string) httpkey.Strictness {
	switch word {
	case "refuse":
		return httpkey.StrictnessRefuse
	case "ignore":
		return httpkey.StrictnessIgnore
	default:
		return httpkey.StrictnessWarn
	}
}

// guards reports whether there is a route, and it does not just let requests through.
func (rt *route) guards() bool { return rt != nil && rt.handler != nil }

// enforces reports whether the route may refuse or replay a request.
func (rt *route) enforces() bool { return rt.guards() && !rt.set.Observe }

// guardsAmbiguous reports whether the route takes requests whose path servers may read as
// one of another route. Only a route that lets nothing pass unguarded may.
func (rt *route) guardsAmbiguous() bool {
	return rt.enforces() && rt.set.Required && rt.set.AmbiguousPaths == config.AmbiguousGuard
}

// serve serves a request that takes this route.
func (rt *route) serve(w http.ResponseWriter, r *http.Request) {
	if rt.handler == nil {
		rt.g.pass(w, r, rt.name)
		return
	}
	r.Pattern = rt.pattern // as http.ServeMux would: it names the operation
	x := &proxied{
		Context: r.Context(), ResponseWriter: w, route: rt, began: time.Now(), answer: answerFree,
		event: Exchange{Method: r.Method, Path: r.URL.EscapedPath(), Route: rt.name, Handling: HandlingRefused, Context: r.Context()},
	}
	defer func() {
		x.claim.Close()
		if rt.g.exchange != nil {
			x.event.Took = time.Since(x.began)
			rt.g.exchange(x.event)
		}
	}()
	x.request = r.WithContext(x)
	if r.Body != nil && r.Body != http.NoBody {
		x.body = arrivingBody{ReadCloser: r.Body, x: x, room: bodyFree, decoded: rt.decodedSize(r)}
		x.request.Body = &x.body
	}
	rt.handler.ServeHTTP(x, x.request)
}

// decodedSize is what a body may become if it is decoded, and 0 if it is not.
func (rt *route) decodedSize(r *http.Request) int64 {
	if _, encoded := r.Header["Content-Encoding"]; !encoded || !rt.set.Decode {
		return 0
	}
	return cmp.Or(rt.set.MaxRequest, defaultRequest)
}

// run is what the guard calls: for a request that has the right to run, or for one that
// it only watches or that has no key.
func (rt *route) run(w http.ResponseWriter, r *http.Request) {
	run, keyed := retrysafe.FromContext(r.Context())
	switch {
	case keyed:
		rt.callUpstream(w, r, run)
	case rt.set.Observe:
		rt.g.forward(w, r)
	case !rt.slots.acquire(1):
		if x := proxiedOf(r.Context()); x != nil {
			x.event.Code = busy.Code
		}
		rt.guard.Refuse(w, r, "", &busy)
	default:
		defer rt.slots.release(1)
		rt.g.forward(w, r)
	}
}
