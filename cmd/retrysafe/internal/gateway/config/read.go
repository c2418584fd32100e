package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// A reader fills a Config from a tree of YAML and collects all that is wrong on
// the way.
type reader struct {
	src  *source
	env  func(string) (string, bool)
	flag string // whose value is being read, if it is not the file's
	errs []*FieldError
	bad  []string // paths of which something is known to be wrong

	routes *yaml.Node // for when defaults are complete
	visits int
}

// maxVisits bounds the work that aliases of aliases can ask for.
const maxVisits = 100_000

// refuse notes what is wrong with the field at path, which n says.
func (r *reader) refuse(path string, n *yaml.Node, format string, args ...any) {
	e := &FieldError{File: r.src.name, Line: n.Line, Column: n.Column, Field: path, Err: fmt.Errorf(format, args...)}
	if r.flag != "" {
		e.File = r.flag
	}
	r.errs = append(r.errs, e)
	r.bad = append(r.bad, path)
}

// broken reports whether something is known to be wrong with the field at path,
// with a part of it or with what it is part of, so that what follows from it need
// not be told as well.
func (r *reader) broken(path string) bool {
	for _, b := range r.bad {
		if b == "" || within(path, b) || within(b, path) {
			return true
		}
	}
	return false
}

// within reports whether path is whole or a part of it.
func within(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// mark remembers where the field at path is said.
func (r *reader) mark(path string, n *yaml.Node) {
	m := mark{r.src.name, n.Line, n.Column}
	if r.flag != "" {
		m = mark{file: r.flag}
	}
	r.src.marks[path] = m
}

// resolve returns what an alias stands for.
func (r *reader) resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// literal returns the scalar that n is.
func (r *reader) literal(path string, n *yaml.Node) (literal, bool) {
	to := r.resolve(n)
	switch {
	case to.Kind != yaml.ScalarNode:
		r.refuse(path, n, "%s is where a single value belongs", kindOf(to))
		return literal{}, false
	case r.flag != "":
		return literal{text: to.Value}, true
	case to.Tag == nullTag:
		r.refuse(path, n, "has no value; give it one, or leave the field out")
		return literal{}, false
	}
	text, changed, err := expand(to.Value, r.env)
	if err != nil {
		r.refuse(path, n, "%w", err)
		return literal{}, false
	}
	l := literal{text, to.Tag}
	if changed {
		l.tag = ""
	}
	return l, true
}

// items returns the elements of the list that n is.
func (r *reader) items(path string, n *yaml.Node) ([]*yaml.Node, bool) {
	to := r.resolve(n)
	if to.Kind != yaml.SequenceNode {
		r.refuse(path, n, "%s is where a list belongs: [a, b], or [] for none", kindOf(to))
		return nil, false
	}
	return to.Content, r.visit(path, n, len(to.Content))
}

// visit counts nodes that are looked at, and reports whether there may be more.
func (r *reader) visit(path string, n *yaml.Node, nodes int) bool {
	if r.visits <= maxVisits {
		if r.visits += nodes; r.visits > maxVisits {
			r.refuse(path, n, "there is too much of it: aliases stand for more than %d values", maxVisits)
		}
	}
	return r.visits <= maxVisits
}

// A section is a value with fields of its own.
type section []field

func (s section) read(r *reader, path string, n *yaml.Node) {
	for _, p := range r.pairs(path, n) {
		at := child(path, printable.Quoted(p.key.Value))
		f := s.find(p.key.Value)
		if f == nil {
			r.unknown(s, path, p.key)
			continue
		}
		r.mark(at, p.key)
		if r.resolve(p.value).Kind == yaml.ScalarNode {
			r.mark(at, p.value)
		}
		f.read(r, at, p.value)
	}
}

func (s section) find(name string) *field {
	for i := range s {
		if s[i].name == name {
			return &s[i]
		}
	}
	return nil
}

func (s section) names() []string {
	var all []string
	for _, f := range s {
		all = append(all, f.name)
	}
	return all
}

// unknown refuses a field that is not in the section, and says which is or where
// it would be.
func (r *reader) unknown(s section, path string, key *yaml.Node) {
	at := child(path, printable.Quoted(key.Value))
	if meant := nearest(key.Value, s.names()); meant != "" {
		r.refuse(at, key, "there is no such field; did you mean %s?", meant)
		r.bad = append(r.bad, child(path, meant)) // it was meant to be there
		return
	}
	if homes := homesOf(key.Value); homes != "" {
		r.refuse(at, key, "this field does not belong here but to %s", homes)
		return
	}
	r.refuse(at, key, "there is no such field; there are %s", strings.Join(s.names(), ", "))
}

// A pair is a field's name and value in the file.
type pair struct{ key, value *yaml.Node }

// pairs returns the fields of the mapping that n is, those that are merged into
// it by "<<" included. A mapping with nothing in it may be left out.
func (r *reader) pairs(path string, n *yaml.Node) []pair {
	own, merged := r.split(path, n, 0)
	there := map[string]bool{}
	for _, p := range own {
		there[p.key.Value] = true
	}
	for _, p := range merged {
		if !there[p.key.Value] {
			own, there[p.key.Value] = append(own, p), true
		}
	}
	return own
}

// split returns a mapping's own fields and those that are merged into it, the
// more important ones first.
func (r *reader) split(path string, n *yaml.Node, depth int) (own, merged []pair) {
	const deepest = 8
	to := r.resolve(n)
	switch {
	case to.Kind == yaml.ScalarNode && to.Tag == nullTag && depth == 0:
		return nil, nil
	case to.Kind != yaml.MappingNode:
		r.refuse(path, n, "%s is where fields belong: name: value", kindOf(to))
		return nil, nil
	case depth > deepest:
		r.refuse(path, n, "fields are merged over more than %d mappings", deepest)
		return nil, nil
	case !r.visit(path, n, len(to.Content)):
		return nil, nil
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(to.Content); i += 2 {
		key, value := to.Content[i], to.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.refuse(path, key, "%s is where a field's name belongs", kindOf(key))
		case key.Tag == mergeTag:
			for _, from := range sources(r.resolve(value)) {
				a, b := r.split(path, from, depth+1)
				merged = append(append(merged, a...), b...)
			}
		case first[key.Value] != nil:
			r.refuse(child(path, printable.Quoted(key.Value)), key, "it is there twice; the first is on line %d", first[key.Value].Line)
		default:
			own, first[key.Value] = append(own, pair{key, value}), key
		}
	}
	return own, merged
}

// sources are the mappings that "<<" names: one, or a list of them.
func sources(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// kindOf says in words what a node is.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == nullTag:
		return "nothing"
	}
	return quote(n.Value)
}
