package canonjson

import "strconv"

// A pruner applies a filter to a canonical document. Because the document is canonical,
// names are compared as they are written, and the end of a value is found by counting
// brackets.
type pruner struct {
	nodes  []node
	text   []byte  // the document and padding
	dst    []byte  // what is kept
	active []int32 // the nodes reached by the values around the one at hand and by that one, in this order
}

// prune appends to dst what the filter selects of e.whole.
func (f *Filter) prune(dst []byte, e *Encoder) []byte {
	if c := e.whole[0]; c != '{' && c != '[' {
		return append(dst, e.whole[:len(e.whole)-len(padding)]...)
	}
	p := pruner{f.nodes, e.whole, dst, append(e.active[:0], 0)}
	p.container(0, p.active, f.all || f.nodes[0].include)
	e.active = p.active
	return p.dst
}

// container appends what is kept of the array or object at i and returns the index
// behind it. Reached are the nodes that the path to it leads to. Included says whether
// a pointer of include names it, or something around it.
func (p *pruner) container(i int, reached []int32, included bool) int {
	array := p.text[i] == '['
	p.dst = append(p.dst, p.text[i])
	i++
	start, mark, removed := len(p.dst), len(p.active), 0
	for index := 0; p.text[i] != '}' && p.text[i] != ']'; index++ {
		from := i
		if array {
			p.stepIndex(reached, index)
		} else {
			i = stringEnd(p.text, i)
			p.stepName(reached, p.text[from+1:i-1])
			i++
		}
		v, inside := p.decide(p.active[mark:], included, p.text[i])
		if v == remove {
			i = skipValue(p.text, i)
			removed++
		} else {
			for ; array && removed > 0; removed-- {
				p.dst = append(p.dst, "null,"...)
			}
			p.dst = append(p.dst, p.text[from:i]...)
			from = i
			if v == look {
				i = p.container(i, p.active[mark:], inside)
			} else {
				i = skipValue(p.text, i)
				p.dst = append(p.dst, p.text[from:i]...)
			}
			p.dst = append(p.dst, ',')
		}
		p.active = p.active[:mark]
		if p.text[i] == ',' {
			i++
		}
	}
	if len(p.dst) > start {
		p.dst = p.dst[:len(p.dst)-1] // the last comma
	}
	p.dst = append(p.dst, p.text[i])
	return i + 1
}

// A decision is what to do with a value.
type decision int

const (
	remove decision = iota
	keep            // as it is
	look            // keep what is kept of its contents
)

// decide decides about a value that starts with c. It also returns included for its
// contents.
func (p *pruner) decide(reached []int32, included bool, c byte) (decision, bool) {
	includeBelow, excludeBelow := false, false
	for _, at := range reached {
		n := &p.nodes[at]
		if n.exclude {
			return remove, false
		}
		included = included || n.include
		includeBelow = includeBelow || n.includeBelow
		excludeBelow = excludeBelow || n.excludeBelow
	}
	nested := c == '{' || c == '['
	switch {
	case included && !(nested && excludeBelow):
		return keep, true
	case nested && (included || includeBelow):
		return look, included
	default:
		return remove, false
	}
}

// stepName sets active to the nodes that the name of a member leads to.
func (p *pruner) stepName(reached []int32, name []byte) {
	for _, at := range reached {
		n := &p.nodes[at]
		if child, ok := n.named[string(name)]; ok {
			p.active = append(p.active, child)
		}
		if n.star != 0 {
			p.active = append(p.active, n.star)
		}
	}
}

// stepIndex sets active to the nodes that the index of an element leads to.
func (p *pruner) stepIndex(reached []int32, index int) {
	var digits [20]byte
	for _, at := range reached {
		n := &p.nodes[at]
		if n.indexed {
			if child, ok := n.named[string(strconv.AppendInt(digits[:0], int64(index), 10))]; ok {
				p.active = append(p.active, child)
			}
		}
		if n.star != 0 {
			p.active = append(p.active, n.star)
		}
	}
}

// skipValue returns the index behind the value at i, which is inside an array or object.
func skipValue(text []byte, i int) int {
	depth := 0
	for {
		switch text[i] {
		case '"':
			i = stringEnd(text, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // behind a number or literal
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
}

// stringEnd returns the index behind the string at i.
func stringEnd(text []byte, i int) int {
	i++
	for {
		m := special(load(text, i))
		i += first(m)
		switch {
		case m == 0:
		case text[i] == '"':
			return i + 1
		default:
			i += 2 // a backslash and what it protects
		}
	}
}
