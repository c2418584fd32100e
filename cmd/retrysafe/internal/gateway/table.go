package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/routing"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// A table says which route a request takes.
type table struct {
	places   *routing.Table
	order    []*route // by their places, the default route last
	fallback *route   // for what no pattern matches
}

// makeRoutes makes a route of each pattern, and one for the rest.
func (g *Gateway) makeRoutes(c *config.Config, _ *Parts) (err error) {
	t := &g.table
	routes := make([]routing.Route, len(c.Routes))
	for i := range c.Routes {
		match := c.Routes[i].Match
		rt, err := g.newRoute(match, &c.Routes[i].Settings)
		if err == nil && strings.HasPrefix(patternPath(match), ownPrefix) {
			err = errors.New("paths below " + ownPrefix + " are the gateway's own")
		}
		if err != nil {
			return fmt.Errorf("route %q: %w", match, err)
		}
		routes[i] = routing.Route{Match: match, Guards: rt.guards()}
		t.order = append(t.order, rt)
	}
	if t.fallback, err = g.newRoute("", &c.Defaults); err != nil {
		return fmt.Errorf("defaults: %w", err)
	}
	t.order = append(t.order, t.fallback)
	t.places, err = routing.New(routes, routing.Route{Guards: t.fallback.guards()})
	return err
}

// at returns the route at a place, or nil.
func (t *table) at(place int) *route {
	switch place {
	case routing.None:
		return nil
	case routing.Default:
		return t.fallback
	default:
		return t.order[place]
	}
}

// find returns the route that a request takes, or nil if no route looks at it. If there is
// a rival, the request has to be refused, because servers may read its path as one of that
// route too.
func (t *table) find(r *http.Request) (rt, rival *route) {
	path := r.URL.EscapedPath() // as it is sent on
	if t.places.Looks(r.Method) {
		if rt, rival = t.choose(t.places.Find(r.Method, r.Host, path)); rival != nil || rt.guards() {
			return rt, rival
		}
	}
	if other := t.overridden(r, path); other != nil {
		return other, nil
	}
	return rt, nil
}

// choose chooses between the route of a path as it was sent and those that servers may
// read it as one of. Guarding is the default of what is unclear: if one of the routes
// enforces something, it is that one. It returns a rival if several do, unless the first
// lets nothing pass unguarded and its settings allow such paths.
func (t *table) choose(place int, others []int) (rt, rival *route) {
	rt = t.at(place)
	if len(others) == 0 || rt.guardsAmbiguous() {
		return rt, nil
	}
	for _, other := range others {
		read := t.at(other)
		switch {
		case read.enforces() && rt.enforces():
			return rt, read
		case read.enforces(), read.guards() && !rt.guards():
			rt = read
		}
	}
	return rt, nil
}

// overridden returns the guarded route of a method that a request asks to be taken
// for, by a header or by how its own is spelled, or nil. Were it let through as what
// it is, a service that heeds that would run it unguarded. The route's guard refuses it.
func (t *table) overridden(r *http.Request, path string) *route {
	if method := strings.ToUpper(r.Method); method != r.Method {
		if rt := t.guarded(method, r.Host, path); rt != nil {
			return rt
		}
	}
	for _, method := range headerkind.OverrideMethods(r.Header) {
		if rt := t.guarded(method, r.Host, path); rt != nil {
			return rt
		}
	}
	return nil
}

// guarded returns a route that guards a path in this method, as it was sent or as
// servers may read it, or nil.
func (t *table) guarded(method, host, path string) *route {
	if !t.places.Looks(method) {
		return nil
	}
	place, others := t.places.Find(method, host, path)
	for _, place := range append([]int{place}, others...) {
		if rt := t.at(place); rt.guards() {
			return rt
		}
	}
	return nil
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

// patternPath returns the path of a pattern, without method and host.
func patternPath(pattern string) string {
	_, rest, _ := routing.CutMethod(pattern)
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}
