package conform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A node is a JSON value in which the order of members and the spelling of numbers are
// kept, so that a body can be written in another way.
type node struct {
	kind    byte // '{', '[', '"', '0' for a number, 'w' for null, true and false
	text    string
	names   []string
	members []*node
}

func parseNode(data []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := readNode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	return n, nil
}

func readNode(d *json.Decoder, depth int) (*node, error) {
	if depth > 100 {
		return nil, errors.New("it is nested too deeply")
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &node{kind: byte(v)}
		for d.More() {
			if v == '{' {
				name, err := d.Token()
				if err != nil {
					return nil, err
				}
				text, _ := name.(string) // the decoder has seen to it
				n.names = append(n.names, text)
			}
			m, err := readNode(d, depth+1)
			if err != nil {
				return nil, err
			}
			n.members = append(n.members, m)
		}
		_, err := d.Token()
		return n, err
	case json.Number:
		return &node{kind: '0', text: v.String()}, nil
	case string:
		return &node{kind: '"', text: v}, nil
	default:
		word, err := json.Marshal(v)
		return &node{kind: 'w', text: string(word)}, err
	}
}

// A writing is how a node is written.
type writing struct {
	reversed bool // members in the opposite order, with spaces
	escaped  bool // the first character of each string as an escape
}

func (n *node) write(b *bytes.Buffer, how writing) {
	switch n.kind {
	case '{', '[':
		b.WriteByte(n.kind)
		for i := range n.members {
			if i > 0 {
				b.WriteByte(',')
			}
			at := i
			if how.reversed && n.kind == '{' {
				at = len(n.members) - 1 - i
				b.WriteByte(' ')
			}
			if n.kind == '{' {
				writeString(b, n.names[at], false)
				b.WriteByte(':')
			}
			if how.reversed {
				b.WriteByte(' ')
			}
			n.members[at].write(b, how)
		}
		b.WriteByte(n.kind + 2)
	case '"':
		writeString(b, n.text, how.escaped)
	default:
		b.WriteString(n.text)
	}
}

func writeString(b *bytes.Buffer, text string, escaped bool) {
	if escaped && text != "" && text[0] < 0x80 && !strings.HasPrefix(text, "{{") {
		fmt.Fprintf(b, `"\u%04x`, text[0])
		text = text[1:]
	} else {
		b.WriteByte('"')
	}
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can be written
	b.Write(bytes.TrimSpace(rest.Bytes())[1:])
}

func (n *node) bytes(how writing) []byte {
	var b bytes.Buffer
	n.write(&b, how)
	return b.Bytes()
}

// leaf returns the first value of a kind, in the order of the document.
func (n *node) leaf(kind byte) *node {
	if n.kind == kind {
		return n
	}
	for _, m := range n.members {
		if found := m.leaf(kind); found != nil {
			return found
		}
	}
	return nil
}

// withNumber returns the document with another number in place of its first one, or nil
// if it has none.
func (n *node) withNumber(text string) []byte {
	leaf := n.leaf('0')
	if leaf == nil {
		return nil
	}
	was := leaf.text
	leaf.text = text
	defer func() { leaf.text = was }()
	return n.bytes(writing{})
}

// changed returns the document with one value that is another one: the first number, one
// higher, or the first string, one character longer. Nil is for a document with neither.
func (n *node) changed() []byte {
	if leaf := n.leaf('0'); leaf != nil {
		if i, ok := new(big.Int).SetString(leaf.text, 10); ok {
			return n.withNumber(i.Add(i, big.NewInt(1)).String())
		}
		f, err := strconv.ParseFloat(leaf.text, 64)
		if err == nil {
			return n.withNumber(strconv.FormatFloat(f+1, 'f', 2, 64))
		}
	}
	leaf := n.leaf('"')
	if leaf == nil {
		return nil
	}
	was := leaf.text
	leaf.text += "2"
	defer func() { leaf.text = was }()
	return n.bytes(writing{})
}

// changedForm returns a form whose first whole number is one higher, or nil if it has none.
func changedForm(body []byte) []byte {
	pairs := strings.Split(string(body), "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			pairs[i] = name + "=" + strconv.FormatInt(n+1, 10)
			return []byte(strings.Join(pairs, "&"))
		}
	}
	return nil
}

// respelled returns the document with its first whole number written with an exponent, or
// nil if it has none that can be.
func (n *node) respelled() []byte {
	leaf := n.leaf('0')
	if leaf == nil {
		return nil
	}
	if _, ok := new(big.Int).SetString(leaf.text, 10); !ok {
		return nil
	}
	return n.withNumber(leaf.text + ".0")
}

// scalars calls visit with each string and number of a document.
func (n *node) scalars(visit func(text string)) {
	if n.kind == '"' || n.kind == '0' {
		visit(n.text)
	}
	for _, m := range n.members {
		m.scalars(visit)
	}
}

// at returns what a JSON pointer leads to, or nil.
func (n *node) at(pointer string) *node {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		i := -1
		switch n.kind {
		case '{':
			i = slices.Index(n.names, part)
		case '[':
			if at, err := strconv.Atoi(part); err == nil {
				i = at
			}
		}
		if i < 0 || i >= len(n.members) {
			return nil
		}
		n = n.members[i]
	}
	return n
}

// sameDocument reports whether two bodies say the same: byte for byte, or as JSON.
func sameDocument(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	for of, into := range map[*[]byte]*any{&a: &x, &b: &y} {
		d := json.NewDecoder(bytes.NewReader(*of))
		d.UseNumber()
		if d.Decode(into) != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}
