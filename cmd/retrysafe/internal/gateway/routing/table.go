package routing

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	// Default is the place of the route of requests that no pattern matches.
	Default = -1
	// None says that no route is about a request: it has a method that is guarded only
	// where a pattern names it.
	None = -2
)

// defaultMethods are those of the default route, and of patterns that name none.
var defaultMethods = []string{http.MethodPost, http.MethodPatch}

// A Route is what a [Table] knows of a route.
type Route struct {
	// Match is its pattern; the default route has none.
	Match string
	// Guards says that it does more than let requests pass.
	Guards bool
}

// A Table says which route a request takes. It is safe for concurrent use.
type Table struct {
	patterns map[string][]*pattern // by method, the most specific first
	guarded  bool                  // the default route guards
}

// New returns a table of routes, and of the default route for the rest. A route's place
// is that in the list.
func New(routes []Route, rest Route) (*Table, error) {
	t := &Table{patterns: make(map[string][]*pattern), guarded: rest.Guards}
	mux := http.NewServeMux() // it refuses what is no pattern, and patterns that conflict
	for place, route := range routes {
		method, path, ok := CutMethod(route.Match)
		plain := plainPattern(path)
		if ok {
			plain = method + " " + plain
		}
		if err := register(mux, plain); err != nil {
			return nil, fmt.Errorf("route %q: %w", route.Match, err)
		}
		p := parse(path)
		methods := Methods(route.Match)
		p.place, p.guards, p.methods = place, route.Guards, len(methods)
		for _, method := range methods {
			t.patterns[method] = append(t.patterns[method], p)
		}
	}
	for _, list := range t.patterns {
		slices.SortStableFunc(list, compare)
	}
	return t, nil
}

// plainPattern returns a pattern without a method, with its host as [PlainHost] has it:
// then two that differ in the spelling of a host conflict.
func plainPattern(rest string) string {
	if i := strings.IndexByte(rest, '/'); i > 0 {
		return PlainHost(rest[:i]) + rest[i:]
	}
	return rest
}

// register adds a pattern to the mux, which panics if it is none or conflicts.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// Looks reports whether any route is about requests of this method.
func (t *Table) Looks(method string) bool {
	return slices.Contains(defaultMethods, method) || t.patterns[method] != nil
}

// Match returns the place of the route for exactly this escaped path: of the most
// specific pattern that matches it, else [Default], or [None].
//
// A request that would be unguarded because no pattern matches it takes a guarded route
// whose pattern matches it with a slash more or less at the end: to many servers that
// slash means nothing.
func (t *Table) Match(method, host, path string) int {
	return t.match(method, PlainHost(host), path)
}

func (t *Table) match(method, plainHost, path string) int {
	if path == "" {
		path = "/"
	}
	if path[0] != '/' {
		return t.rest(method)
	}
	of := func(path string, unguarded bool) *pattern {
		for _, p := range t.patterns[method] {
			if (unguarded || p.guards) && (p.host == "" || p.host == plainHost) && p.matches(path) {
				return p
			}
		}
		return nil
	}
	if p := of(path, true); p != nil {
		return p.place
	}
	if rest := t.rest(method); rest == Default && t.guarded {
		return rest
	}
	other, cut := strings.CutSuffix(path, "/")
	if !cut {
		other += "/"
	}
	if other != "" {
		if p := of(other, false); p != nil {
			return p.place
		}
	}
	return t.rest(method)
}

// rest returns the place of a request that no pattern matches.
func (t *Table) rest(method string) int {
	if slices.Contains(defaultMethods, method) {
		return Default
	}
	return None
}

// Find returns the place of the route for an escaped path, as Match does, and the places
// of other routes that servers may read the path as one of.
func (t *Table) Find(method, host, path string) (place int, others []int) {
	plainHost := PlainHost(host)
	place = t.match(method, plainHost, path)
	if isPlain(path) || len(t.patterns[method]) == 0 {
		return place, nil
	}
	note := func(other int) {
		if other != place && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	all, ok := readings(path)
	for _, reading := range all {
		note(t.match(method, plainHost, reading))
	}
	if ok {
		return place, others
	}
	for _, p := range t.patterns[method] {
		note(p.place)
	}
	note(t.rest(method))
	return place, others
}
