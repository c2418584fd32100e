package routing

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"
)

// A pattern is a parsed pattern of [net/http.ServeMux].
type pattern struct {
	place    int  // in the list of routes
	guards   bool // see [Route]
	host     string
	segments []segment
	methods  int // how many it is for
}

// A segment is one part of a pattern's path.
type segment struct {
	kind kind
	text string // of a literal, decoded
}

// A kind says what a segment matches. The lower, the more specific.
type kind uint8

const (
	literal kind = iota
	atEnd        // {$}: the path ends in the slash before it
	one          // {name}: one segment, not empty
	all          // {name...}, or a slash at the end: whatever follows, also nothing
)

// parse parses a pattern without its method, which a ServeMux has accepted.
func parse(rest string) *pattern {
	host, path, _ := strings.Cut(rest, "/")
	p := &pattern{host: PlainHost(host)}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		s := segment{literal, unescape(part)}
		switch {
		case part == "" && i == len(parts)-1, strings.HasSuffix(part, "...}"):
			s = segment{kind: all}
		case part == "{$}":
			s = segment{kind: atEnd}
		case strings.HasPrefix(part, "{"):
			s = segment{kind: one}
		}
		p.segments = append(p.segments, s)
	}
	return p
}

// matches reports whether the pattern is about an escaped path, which begins with a
// slash. The path is taken as it is: nothing is cleaned or redirected.
func (p *pattern) matches(path string) bool {
	rest, more := path[1:], true
	for _, s := range p.segments {
		if !more {
			return false
		}
		if s.kind == all {
			return true
		}
		var part string
		part, rest, more = strings.Cut(rest, "/")
		switch s.kind {
		case atEnd:
			if part != "" || more {
				return false
			}
		case one:
			if part == "" {
				return false
			}
		default:
			if unescape(part) != s.text {
				return false
			}
		}
	}
	return !more
}

// compare orders patterns so that of two that match the same path the more specific one
// comes first. A ServeMux refuses two patterns of which neither is more specific.
func compare(a, b *pattern) int {
	if (a.host == "") != (b.host == "") {
		return -strings.Compare(a.host, b.host)
	}
	byPath := slices.CompareFunc(a.segments, b.segments, func(s, t segment) int {
		return cmp.Or(cmp.Compare(s.kind, t.kind), strings.Compare(s.text, t.text))
	})
	return cmp.Or(byPath, cmp.Compare(a.methods, b.methods))
}

// unescape decodes what is escaped in a segment, or returns it as it is if that is not
// possible.
func unescape(part string) string {
	if strings.IndexByte(part, '%') < 0 {
		return part
	}
	if decoded, err := url.PathUnescape(part); err == nil {
		return decoded
	}
	return part
}

// PlainHost returns a host as patterns are compared with it: names have no case, a dot
// at their end means nothing, and neither does the port.
func PlainHost(host string) string {
	if strings.IndexByte(host, ':') >= 0 {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// CutMethod cuts a pattern behind its method, if it has one.
func CutMethod(pattern string) (method, rest string, ok bool) {
	i := strings.IndexAny(pattern, " \t")
	if i < 0 {
		return "", pattern, false
	}
	return pattern[:i], strings.TrimLeft(pattern[i:], " \t"), true
}

// Methods returns the methods that a pattern is for.
func Methods(pattern string) []string {
	if method, _, ok := CutMethod(pattern); ok {
		return []string{method}
	}
	return slices.Clone(defaultMethods)
}
