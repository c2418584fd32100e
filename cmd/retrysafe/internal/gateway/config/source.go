package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A source remembers where a configuration came from, so that what is found
// wrong later still has its line.
type source struct {
	name  string
	marks map[string]mark
	// refs are the secrets that are nothing but ${NAME}, by path.
	refs  map[string]reference
	notes []Note
}

// A mark is where a field was said.
type mark struct {
	file         string
	line, column int
}

// A reference is a value that came from the environment.
type reference struct{ text, value string }

// A Note is what a user should know of the field at a path.
type Note struct{ Path, Text string }

func newSource(name string) *source {
	return &source{name: name, marks: map[string]mark{}, refs: map[string]reference{}}
}

// said reports whether the field at path was set, rather than left to its default.
func (s *source) said(path string) bool {
	if s == nil {
		return false
	}
	_, ok := s.marks[path]
	return ok
}

// withoutFile reports whether flags are all that the configuration is made of.
func (s *source) withoutFile() bool { return s != nil && s.name == "" }

// byFlag reports whether the field at path was set on the command line.
func (s *source) byFlag(path string) bool {
	return s.said(path) && strings.HasPrefix(s.marks[path].file, "--")
}

// find returns where the field at path was said, or else the nearest thing that
// it belongs to.
func (s *source) find(path string) mark {
	if s == nil {
		return mark{}
	}
	for path != "" {
		if m, ok := s.marks[path]; ok {
			return m
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	if s.name == "" {
		return mark{}
	}
	return mark{s.name, 1, 1}
}

// lines returns notes as messages, in the order of the file.
func (s *source) lines(notes []Note) []string {
	type placed struct {
		mark
		Note
	}
	var all []placed
	for _, n := range notes {
		all = append(all, placed{s.find(n.Path), n})
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(compareLines(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	var texts []string
	for _, p := range all {
		texts = append(texts, at(p.file, p.line, p.column, p.Path)+p.Text)
	}
	return texts
}

// child returns the path of a field in the section at path.
func child(path, name string) string {
	switch {
	case path == "":
		return name
	case name == "":
		return path
	}
	return path + "." + name
}

// element returns the path of a list's element.
func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
