package config

import (
	"slices"
	"strings"
)

// NoLongerGuards returns what before guarded and c does not, one line each with its place
// in the file. A retry of a request that was answered under before is sent to the service
// there, and runs again.
func (c *Config) NoLongerGuards(before *Config) []string {
	w := &warner{Config: c}
	loosened := before.Defaults.enforces() && !c.Defaults.enforces()
	if loosened {
		w.warn("defaults", "%s is %s now and was guarded before: %s", "what no route matches", c.Defaults.laxness(), runsAgain)
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		if !r.enforces() && before.guarded(r.Match) && !(loosened && before.route(r.Match) == nil) {
			w.warn(element("routes", i), "%q is %s now and was guarded before: %s", r.Match, r.laxness(), runsAgain)
		}
	}
	if !c.Defaults.enforces() && !loosened {
		for i := range before.Routes {
			if r := &before.Routes[i]; r.enforces() && c.route(r.Match) == nil {
				w.warn("routes", "%q was guarded before and is not among the routes any more, and the defaults are %s: %s", r.Match, c.Defaults.laxness(), runsAgain)
			}
		}
	}
	return c.src.lines(w.notes)
}

const runsAgain = "retries of requests that were answered under a key before this change run again; undo it unless no client sends any"

// enforces reports whether a retry gets the stored answer.
func (s *Settings) enforces() bool { return !s.Off && !s.Observe }

// laxness is the setting by which requests pass.
func (s *Settings) laxness() string {
	if s.Off {
		return "off"
	}
	return "only observed"
}

// route returns the route of a pattern, nil if there is none.
func (c *Config) route(match string) *Route {
	i := slices.IndexFunc(c.Routes, func(r Route) bool { return r.Match == match })
	if i < 0 {
		return nil
	}
	return &c.Routes[i]
}

// guarded reports whether requests of a pattern were guarded: by its own route or, if the
// pattern may match a POST or PATCH, by the defaults.
func (c *Config) guarded(match string) bool {
	if r := c.route(match); r != nil {
		return r.enforces()
	}
	method, _, named := strings.Cut(match, " ")
	return c.Defaults.enforces() && (!named || method == "POST" || method == "PATCH")
}
