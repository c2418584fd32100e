package routing

import (
	"net/http"
	"slices"
	"strings"
)

// A Request is what a route is found by. Its path may have a wildcard's name in braces,
// which stands for any segment.
type Request struct{ Method, Host, Path string }

// String returns the request as a pattern has it.
func (r Request) String() string { return r.Method + " " + r.Host + r.Path }

// changing are the methods that routes may guard.
var changing = []string{http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}

// Near returns requests that are close to what a pattern matches, and that it does not
// match: with a slash more or less at the end, below the path, in other letters, and in
// other methods.
func Near(match string) []Request {
	_, rest, _ := CutMethod(match)
	p, methods := parse(rest), Methods(match)
	at := strings.IndexByte(rest, '/')
	host, path := rest[:at], rest[at:]
	inside := path
	switch last := p.segments[len(p.segments)-1]; last.kind {
	case all: // a subtree
		path = path[:strings.LastIndexByte(path, '/')]
		inside = path + "/{more}"
	case atEnd:
		path = strings.TrimSuffix(path, "/{$}")
		inside = path + "/"
	default:
	}
	var near []Request
	add := func(method, path string) {
		r := Request{method, host, path}
		if path != "" && !(slices.Contains(methods, method) && p.matches(path)) && !slices.Contains(near, r) {
			near = append(near, r)
		}
	}
	for _, method := range methods {
		for _, other := range []string{path, path + "/", path + "/{more}", capitals(inside)} {
			add(method, other)
		}
	}
	for _, method := range changing {
		add(method, inside)
	}
	return near
}

// capitals returns a path in capitals, but for the names of wildcards.
func capitals(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if !strings.HasPrefix(part, "{") {
			parts[i] = strings.ToUpper(part)
		}
	}
	return strings.Join(parts, "/")
}
