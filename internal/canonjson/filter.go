package canonjson

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Filter selects the parts of a document that count. It is safe for concurrent use; the zero Filter selects everything.
type Filter struct {
	nodes []node // the tokens of all pointers as a tree, nodes[0] being its root; none without pointers
	all   bool   // nothing is included by name, so everything is
}

// A node is the position that a token leads to from its parent.
type node struct {
	named   map[string]int32 // the children by member name, in canonical form without quotes, or array index
	star    int32            // the child for *, or 0
	indexed bool             // some name may be an array index

	include, exclude           bool // a pointer ends here
	includeBelow, excludeBelow bool // a pointer goes on from here
}

// NewFilter returns the filter for two lists of JSON pointers (RFC 6901).
//
// If include is empty everything is kept. Otherwise the values named by include are kept, whole, and the arrays and
// objects on the way to them, without the rest of their contents. What is on the way without being an array or an
// object is not kept. Then the values named by exclude are removed, so exclusion wins.
//
// The token * stands for every member of an object and every element of an array. A member whose name is * cannot be
// told from the others.
//
// Elements keep their places: one that is removed leaves null as long as another one follows that is kept. But if * removes
// all elements of an array, as excluding /items/* does, the array is left empty.
//
// A document that is neither an array nor an object is kept in any case.
func NewFilter(include, exclude []string) (*Filter, error) {
	f := &Filter{all: len(include) == 0}
	for _, p := range include {
		if err := f.add(p, true); err != nil {
			return nil, err
		}
	}
	for _, p := range exclude {
		if p == "" {
			return nil, errors.New("JSON pointer \"\" would exclude the whole document")
		}
		if err := f.add(p, false); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Filter) add(pointer string, include bool) error {
	if len(f.nodes) == 0 {
		f.nodes = append(f.nodes, node{})
	}
	var tokens []string
	if pointer != "" {
		if pointer[0] != '/' {
			return fmt.Errorf("JSON pointer %q does not start with a slash", pointer)
		}
		tokens = strings.Split(pointer[1:], "/")
	}
	if !utf8.ValidString(pointer) {
		return fmt.Errorf("JSON pointer %q is not valid UTF-8", pointer)
	}
	if len(tokens) > MaxDepth {
		return fmt.Errorf("JSON pointer of %d tokens goes deeper than %d", len(tokens), MaxDepth)
	}
	at := int32(0)
	for _, t := range tokens {
		f.nodes[at].includeBelow = f.nodes[at].includeBelow || include
		f.nodes[at].excludeBelow = f.nodes[at].excludeBelow || !include
		name, err := canonicalToken(t)
		if err != nil {
			return fmt.Errorf("JSON pointer %q: %w", pointer, err)
		}
		at = f.child(at, name)
	}
	f.nodes[at].include = f.nodes[at].include || include
	f.nodes[at].exclude = f.nodes[at].exclude || !include
	return nil
}

// child returns the child of a node for a token, and creates it if there is none.
func (f *Filter) child(at int32, name string) int32 {
	fresh := int32(len(f.nodes))
	n := &f.nodes[at]
	if name == "*" {
		if n.star != 0 {
			return n.star
		}
		n.star = fresh
	} else {
		if c, ok := n.named[name]; ok {
			return c
		}
		if n.named == nil {
			n.named = map[string]int32{}
		}
		n.named[name] = fresh
		n.indexed = n.indexed || name != "" && strings.Trim(name, "0123456789") == ""
	}
	f.nodes = append(f.nodes, node{})
	return fresh
}

// canonicalToken returns the member name a token stands for, as it is written in canonical form.
func canonicalToken(token string) (string, error) {
	name := strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	if strings.Count(token, "~") != strings.Count(token, "~0")+strings.Count(token, "~1") {
		return "", fmt.Errorf("token %q has a ~ without 0 or 1", token)
	}
	buf := make([]byte, 6*len(name))
	o := 0
	for i := range len(name) {
		o = putASCII(buf, o, name[i])
	}
	return string(buf[:o]), nil
}
