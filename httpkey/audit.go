package httpkey

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Route is one entry of a router, for [Audit].
type Route struct {
	// Method is empty for a route that takes any.
	Method, Pattern string
	// Handler is what the router calls.
	Handler http.Handler
	// Middleware wraps Handler, outermost first, where the router keeps it apart.
	Middleware []func(http.Handler) http.Handler
}

// Unguarded is a state-changing route that no guard protects.
type Unguarded struct {
	Method, Pattern string
	// Why says what the probe found.
	Why string
}

// Audit returns the state-changing routes that are not guarded, so that a test fails
// when one is added: a flow is as safe as its least guarded step. A route counts as
// guarded for a method that its guard guards and does not only observe. No handler is
// run. Methods default to POST and PATCH.
func Audit(routes []Route, methods ...string) []Unguarded {
	if len(methods) == 0 {
		methods = []string{http.MethodPost, http.MethodPatch}
	}
	var open []Unguarded
	for _, route := range routes {
		for _, method := range methods {
			if route.Method != "" && !strings.EqualFold(route.Method, method) {
				continue
			}
			if why := route.unguarded(method); why != "" {
				open = append(open, Unguarded{method, route.Pattern, why})
			}
		}
	}
	return open
}

// MuxRoutes returns the routes of mux for the given patterns. They are those that mux
// was given: http.ServeMux does not list its own. Wrap names the guard around the mux
// itself and middleware around a handler, outermost first.
func MuxRoutes(mux *http.ServeMux, patterns []string, wrap ...func(http.Handler) http.Handler) []Route {
	routes := make([]Route, 0, len(patterns))
	for _, pattern := range patterns {
		method, path := "", pattern
		if i := strings.IndexAny(pattern, " \t"); i >= 0 {
			method, path = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
		}
		host, path, _ := strings.Cut(path, "/")
		probe := &http.Request{Method: cmp.Or(method, http.MethodPost), URL: &url.URL{Path: "/" + probePath(path)}, Host: host}
		h, found := mux.Handler(probe)
		if found != pattern { // the pattern is missing, or another one takes its requests: that one's guard does not guard this route
			h = nil
		}
		routes = append(routes, Route{Method: method, Pattern: pattern, Handler: h, Middleware: wrap})
	}
	return routes
}

// auditKey marks a probe of Audit. Its value is a *auditAnswer.
type auditKey struct{}

// auditAnswer collects what a probe finds on its way.
type auditAnswer struct {
	guard   *Guard
	reached bool // the end of the chain
}

// unguarded returns why the route is not guarded for method; empty if it is guarded.
func (route *Route) unguarded(method string) string {
	answer := new(auditAnswer)
	var chain http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answer.reached = true })
	switch route.Handler.(type) {
	case *guarded, *txHandler:
		chain = route.Handler
	}
	for _, wrap := range slices.Backward(route.Middleware) {
		chain = wrap(chain)
	}
	ctx := context.WithValue(context.Background(), auditKey{}, answer)
	probe := &http.Request{Method: method, URL: &url.URL{Path: "/"}, Header: make(http.Header), Body: http.NoBody}
	chain.ServeHTTP(discardWriter{}, probe.WithContext(ctx))
	switch {
	case answer.guard == nil && answer.reached:
		return "no guard on the way to its handler"
	case answer.guard == nil:
		return "another middleware answered the probe before a guard did"
	case !slices.Contains(answer.guard.o.Methods, method):
		return "its guard lets " + method + " pass"
	case answer.guard.o.Observe:
		return "its guard only observes"
	case answer.guard.o.Optional:
		return "its guard lets requests without a key pass"
	}
	return ""
}

// answerAudit records in the probe that it has reached a guard.
func (g *Guard) answerAudit(_ http.ResponseWriter, r *http.Request) {
	if answer, ok := r.Context().Value(auditKey{}).(*auditAnswer); ok {
		answer.guard = g
	}
}

// probePath replaces the wildcards of a pattern, and so returns a path that it matches.
func probePath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, "{") {
			segments[i] = "httpkey-audit-probe" // no other pattern is likely to contain it
		}
		if s == "{$}" {
			segments[i] = ""
		}
	}
	return strings.Join(segments, "/")
}

// discardWriter is a response that is thrown away.
type discardWriter struct{}

func (discardWriter) Header() http.Header         { return make(http.Header) }
func (discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (discardWriter) WriteHeader(int)             {}
