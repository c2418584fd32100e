package config

import (
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// printed is a value that prints itself: it has fields, or secrets, in a list.
type printed interface {
	print(p printer, path string) *yaml.Node
}

// sections is a list of sections.
type sections[T any] struct {
	to     *[]T
	fresh  func() T // with the defaults; nil: there are none
	fields func(*T) section
}

func (s sections[T]) read(r *reader, path string, n *yaml.Node) {
	if to := r.resolve(n); to.Kind == yaml.ScalarNode && to.Tag == nullTag {
		return
	}
	items, ok := r.items(path, n)
	if !ok {
		return
	}
	var all []T
	for i, item := range items {
		r.mark(element(path, i), item)
		v := s.blank()
		s.fields(&v).read(r, element(path, i), item)
		all = append(all, v)
	}
	*s.to = all
}

func (s sections[T]) print(p printer, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range *s.to {
		one := p.section(element(path, i), s.fields(&(*s.to)[i]), s.standard())
		if one == nil {
			one = &yaml.Node{Kind: yaml.MappingNode}
		}
		n.Content = append(n.Content, one)
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

// standard returns the fields with their defaults.
func (s sections[T]) standard() section {
	v := s.blank()
	return s.fields(&v)
}

// blank returns an element that says nothing.
func (s sections[T]) blank() (v T) {
	if s.fresh != nil {
		v = s.fresh()
	}
	return v
}

// statusCode is a count that says nothing where it is 0.
func statusCode(to *int) value {
	s, _ := count(to).(scalar[int])
	s.print = func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	return choice[int]{s}
}

// secretList is a list of secrets.
type secretList struct{ to *[]Secret }

func (l secretList) item(s *Secret) value { return secretText(s, redactAll) }

func (l secretList) read(r *reader, path string, n *yaml.Node) {
	list[Secret]{l.to, l.item}.read(r, path, n)
}

func (l secretList) print(p printer, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range *l.to {
		v := l.item(&(*l.to)[i])
		one := written(v)
		p.conceal(element(path, i), v, one)
		n.Content = append(n.Content, one)
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

// someTexts is a list of texts, or one without the brackets. What YAML takes for a number
// is a text too.
type someTexts struct{ to *[]string }

func (s someTexts) read(r *reader, path string, n *yaml.Node) {
	items := []*yaml.Node{n}
	if r.resolve(n).Kind == yaml.SequenceNode {
		items, _ = r.items(path, n)
	}
	var all []string
	for i, item := range items {
		at := element(path, i)
		r.mark(at, item)
		l, ok := r.literal(at, item)
		if !ok {
			continue
		}
		if wrong := wrongText(l.text); wrong != "" {
			r.refuse(at, item, "%s %s", quote(r.resolve(item).Value), wrong)
			continue
		}
		all = append(all, l.text)
	}
	*s.to = all
}

func (s someTexts) write() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range *s.to {
		n.Content = append(n.Content, textNode(text))
	}
	return n
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: strTag, Value: dollars(text)}
}

// conditions is a mapping of JSON pointers to a text, or a list of texts.
type conditions struct{ to *map[string][]string }

func (c conditions) read(r *reader, path string, n *yaml.Node) {
	all := map[string][]string{}
	for _, p := range r.pairs(path, n) {
		at := child(path, printable.Quoted(p.key.Value))
		r.mark(at, p.key)
		if _, err := jsonrule.ParsePointer(p.key.Value); err != nil {
			r.refuse(at, p.key, "%w", err)
			continue
		}
		var is []string
		someTexts{&is}.read(r, at, p.value) // true and 5 are compared as they are written
		if to := r.resolve(p.value); to.Kind == yaml.SequenceNode && len(to.Content) == 0 {
			r.refuse(at, p.value, "the list is empty, so the condition never holds")
		}
		all[p.key.Value] = is
	}
	*c.to = nil
	if len(all) > 0 {
		*c.to = all
	}
}

func (c conditions) write() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, at := range slices.Sorted(maps.Keys(*c.to)) {
		is := (*c.to)[at]
		n.Content = append(n.Content, nameNode(at), someTexts{&is}.write())
	}
	return n
}

// textMap is a mapping of names to texts.
type textMap struct{ to *map[string]string }

func (m textMap) read(r *reader, path string, n *yaml.Node) {
	all := map[string]string{}
	for _, p := range r.pairs(path, n) {
		at := child(path, printable.Quoted(p.key.Value))
		r.mark(at, p.value)
		var v string
		text(&v).read(r, at, p.value)
		all[p.key.Value] = v
	}
	*m.to = nil
	if len(all) > 0 {
		*m.to = all
	}
}

func (m textMap) write() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, name := range slices.Sorted(maps.Keys(*m.to)) {
		n.Content = append(n.Content, nameNode(name), textNode((*m.to)[name]))
	}
	return n
}
