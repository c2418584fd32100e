package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// A table says which route a request takes.
type table struct {
	mux      *http.ServeMux    // it says which pattern matches; its handlers are never called
	routes   map[string]*route // by plain pattern
	fallback *route            // for what no pattern matches
	methods  []string          // that any route looks at; all others pass
	order    []*route
}

// guardedMethods are those that are looked at where a pattern names none.
var guardedMethods = []string{http.MethodPost, http.MethodPatch}

// makeRoutes makes a route of each pattern, and one for the rest.
func (g *Gateway) makeRoutes(c *config.Config, _ *Parts) error {
	t := &g.table
	t.mux, t.routes = http.NewServeMux(), make(map[string]*route)
	t.methods = slices.Clone(guardedMethods)
	for i := range c.Routes {
		match := c.Routes[i].Match
		rt, err := g.newRoute(match, &c.Routes[i].Settings)
		if err == nil {
			err = register(t.mux, plainPattern(match))
		}
		if err != nil {
			return fmt.Errorf("route %q: %w", match, err)
		}
		t.routes[plainPattern(match)] = rt
		t.order = append(t.order, rt)
		for _, method := range rt.methods {
			if !slices.Contains(t.methods, method) {
				t.methods = append(t.methods, method)
			}
		}
	}
	var err error
	if t.fallback, err = g.newRoute("", &c.Defaults); err != nil {
		return fmt.Errorf("defaults: %w", err)
	}
	t.order = append(t.order, t.fallback)
	return nil
}

// register adds a pattern to the mux, which panics if it is none or conflicts.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if strings.HasPrefix(patternPath(pattern), ownPrefix) {
		return errors.New("paths below " + ownPrefix + " are the gateway's own")
	}
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// guards reports whether any route looks at requests of this method.
func (t *table) guards(method string) bool {
	return method == http.MethodPost || slices.Contains(t.methods, method)
}

// find returns the route that a request takes, or nil if no route looks at it. A
// service need not read a request as the gateway does: one that is guarded in any of
// its readings is guarded.
func (t *table) find(r *http.Request) *route {
	rt := t.match(r, r.Method)
	if rt.guards() {
		return rt
	}
	if other := t.overridden(r); other != nil {
		return other
	}
	return rt
}

// overridden returns the guarded route of a method that a request asks to be taken
// for, by a header or by how its own is spelled, or nil. Were it let through as what
// it is, a service that heeds that would run it unguarded. The route's guard refuses it.
func (t *table) overridden(r *http.Request) *route {
	if method := strings.ToUpper(r.Method); method != r.Method {
		if rt := t.match(r, method); rt.guards() {
			return rt
		}
	}
	for _, name := range overrideHeaders {
		for _, line := range r.Header[name] {
			if rt := t.match(r, strings.ToUpper(strings.TrimSpace(line))); rt.guards() {
				return rt
			}
		}
	}
	return nil
}

var overrideHeaders = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// match returns the route for the method that a request has or asks to be taken for,
// or nil. The mux cleans paths before it compares them, and so it should: a service
// may do the same, and a guard must not be slipped past by a second slash, nor by one
// that is escaped. What is sent on is the path as it came.
func (t *table) match(r *http.Request, method string) *route {
	if !t.guards(method) {
		return nil
	}
	rt := t.lookup(method, r.Host, r.URL)
	if rt.guards() || r.URL.RawPath == "" {
		return rt
	}
	if decoded := t.lookup(method, r.Host, &url.URL{Path: r.URL.Path}); decoded.guards() {
		return decoded
	}
	return rt
}

// lookup returns the route of the most specific pattern.
func (t *table) lookup(method, host string, u *url.URL) *route {
	if len(t.routes) > 0 {
		_, pattern := t.mux.Handler(&http.Request{Method: method, Host: plainHost(host), URL: u})
		if rt := t.routes[pattern]; rt != nil && slices.Contains(rt.methods, method) {
			return rt
		}
	}
	if slices.Contains(t.fallback.methods, method) {
		return t.fallback
	}
	return nil
}

// plainHost returns a host as patterns are registered with it: names have no case, a
// dot at their end means nothing, and neither does the port.
func plainHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// plainPattern returns a pattern with its host as plainHost has it.
func plainPattern(pattern string) string {
	_, rest, _ := cutMethod(pattern)
	if host, _, ok := strings.Cut(rest, "/"); ok && host != "" {
		at := len(pattern) - len(rest)
		return pattern[:at] + plainHost(host) + rest[len(host):]
	}
	return pattern
}

// names returns what routes and their operations are called.
func (t *table) names() []string {
	var names []string
	for _, rt := range t.order {
		for _, name := range append([]string{rt.name}, rt.operations()...) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// methodsOf returns the methods that a pattern is for.
func methodsOf(pattern string) []string {
	if method, _, ok := cutMethod(pattern); ok {
		return []string{method}
	}
	return guardedMethods
}

// cutMethod cuts a pattern behind its method, if it has one.
func cutMethod(pattern string) (method, rest string, ok bool) {
	i := strings.IndexAny(pattern, " \t")
	if i < 0 {
		return "", pattern, false
	}
	return pattern[:i], strings.TrimLeft(pattern[i:], " \t"), true
}

// patternPath returns the path of a pattern, without method and host.
func patternPath(pattern string) string {
	_, rest, _ := cutMethod(pattern)
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}
