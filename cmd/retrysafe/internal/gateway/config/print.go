package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Print returns the whole configuration as a file, defaults included and marked.
// What a route does not say there is as in defaults.
//
// Passwords and tokens are hidden, but one that came from the environment whole
// stands there as ${NAME}, and one that has a file of its own as that file. So
// where no secret is written in the file itself, [Parse] makes the same of it.
func (c *Config) Print() ([]byte, error) { return c.print(false) }

// PrintSecrets is Print with the secrets. What it returns [Parse] reads back to
// an equal configuration.
func (c *Config) PrintSecrets() ([]byte, error) { return c.print(true) }

func (c *Config) print(reveal bool) ([]byte, error) {
	d := Default()
	p := printer{c, reveal}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(p.section("", c.fields(), d.fields())); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	return b.Bytes(), nil
}

type printer struct {
	*Config
	reveal bool
}

// section returns a section with its fields, compared with what they are by
// default.
func (p printer) section(path string, ours, defaults section) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i, f := range ours {
		at := child(path, f.name)
		if v := p.field(at, f.value, defaults[i].value); v != nil {
			n.Content = append(n.Content, nameNode(f.name), v)
		}
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

// field returns what a field says, or nil if it says nothing.
func (p printer) field(path string, v, standard value) *yaml.Node {
	if t, ok := v.(tenant); ok {
		return p.section(path, t.to.fields(), standard.(tenant).to.fields())
	}
	if s, ok := v.(section); ok {
		return p.section(path, s, standard.(section))
	}
	if p.inFile(path) {
		return nil
	}
	if v, ok := v.(printed); ok {
		return v.print(p, path)
	}
	n, usual := written(v), written(standard)
	switch same := sameNode(n, usual); {
	case n == nil || same && empty(n):
		return nil
	case same:
		n.LineComment = "default"
	default:
		p.conceal(path, v, n)
	}
	return n
}

// inFile reports whether a secret stands in a file of its own, which is printed
// instead.
func (p printer) inFile(path string) bool {
	return slices.ContainsFunc(p.secretFiles(), func(s secretFile) bool {
		_, file := s.of(p.Config)
		return s.field == path && *file != ""
	})
}

// conceal hides a secret.
func (p printer) conceal(path string, v value, n *yaml.Node) {
	s, ok := v.(concealed)
	if !ok || p.reveal {
		return
	}
	if p.src != nil {
		if ref, ok := p.src.refs[path]; ok && ref.value == s.current() {
			n.Value = ref.text
			return
		}
	}
	if veil := s.veil(); veil != s.current() {
		n.Value, n.LineComment = dollars(veil), "hidden"
	}
}

func nameNode(name string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: strTag, Value: name}
}

func sameNode(a, b *yaml.Node) bool { return reflect.DeepEqual(a, b) }

// empty reports whether a node is a text or a list with nothing in it.
func empty(n *yaml.Node) bool { return n.Value == "" && len(n.Content) == 0 }

// Equal reports whether two configurations say the same, wherever it is written.
func (c *Config) Equal(d *Config) bool {
	a, b := c.bare(), d.bare()
	return reflect.DeepEqual(a, b)
}

// bare returns c without what tells where it came from.
func (c *Config) bare() Config {
	b := *c
	b.src = nil
	b.Routes = slices.Clone(c.Routes)
	for i := range b.Routes {
		b.Routes[i].Line = 0
	}
	return b
}
