package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// split returns the pattern's method, if it has one, and the rest.
func (r Route) split() (method, rest string) {
	if i := strings.IndexAny(r.Match, " \t"); i >= 0 {
		return r.Match[:i], strings.TrimLeft(r.Match[i:], " \t")
	}
	return "", r.Match
}

// routes is the list of routes. It is read last: each begins as a copy of the
// defaults.
type routes struct{ of *Config }

func (v routes) read(r *reader, _ string, n *yaml.Node) { r.routes = n }

func (v routes) write() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.of.Routes {
		n.Content = append(n.Content, v.of.Routes[i].differences(&v.of.Defaults))
	}
	return n
}

// differences returns the route as it would be written below these defaults.
func (r *Route) differences(d *Settings) *yaml.Node {
	inherited := Route{Settings: *d}
	n := &yaml.Node{Kind: yaml.MappingNode}
	theirs := inherited.fields()
	for i, f := range r.fields() {
		if ours := written(f.value); ours != nil && !sameNode(ours, written(theirs[i].value)) {
			n.Content = append(n.Content, nameNode(f.name), ours)
		}
	}
	return n
}

// guardsAll reports whether no request passes these settings unguarded.
func (s *Settings) guardsAll() bool { return s.Required && !s.Off && !s.Observe }

// readRoutes reads the routes now that the defaults are known.
func (r *reader) readRoutes(c *Config) {
	if r.routes == nil {
		return
	}
	if n := r.resolve(r.routes); n.Kind == yaml.ScalarNode && n.Tag == nullTag {
		return
	}
	items, _ := r.items("routes", r.routes)
	for i, n := range items {
		path := element("routes", i)
		r.mark(path, n)
		route := Route{Settings: c.Defaults, Line: n.Line}
		route.fields().read(r, path, n)
		route.displace(func(name string) bool { return r.src.said(child(path, name)) })
		c.Routes = append(c.Routes, route)
	}
}

// displace lets what a route says take the place of what it has from the defaults
// and what cannot be had together with it.
func (r *Route) displace(said func(name string) bool) {
	switch {
	case said("derive_key") && r.DeriveKey != "" && !said("forward_key"):
		r.ForwardKey = ""
	case said("forward_key") && r.ForwardKey != "" && !said("derive_key"):
		r.DeriveKey = ""
	}
	switch {
	case said("off") && r.Off && !said("observe"):
		r.Observe = false
	case said("observe") && r.Observe && !said("off"):
		r.Off = false
	}
	if !said("ambiguous_paths") && !r.guardsAll() {
		r.AmbiguousPaths = AmbiguousRefuse
	}
}
