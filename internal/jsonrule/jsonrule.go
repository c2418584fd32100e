// Package jsonrule reads values out of JSON documents by JSON pointers (RFC 6901), and
// tells whether a document fulfils conditions: the rules by which resolvers, webhooks and
// ledgers are told what a provider's document says.
package jsonrule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A Document is a JSON value that was read whole.
type Document struct{ value any }

// Parse reads a document. Numbers keep the digits they were written with. An object
// with two members of one name is refused: two readers could take different ones.
func Parse(text []byte) (Document, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := parseValue(d, 0)
	if err != nil {
		return Document{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Document{}, errors.New("something follows the JSON value")
	}
	return Document{value}, nil
}

// maxDepth bounds the nesting of a document.
const maxDepth = 200

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	token, err := next(d)
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			name, err := next(d)
			if err != nil {
				return nil, err
			}
			text, _ := name.(string) // the decoder admits nothing else here
			if _, ok := object[text]; ok {
				return nil, fmt.Errorf("an object has two members %q", text)
			}
			if object[text], err = parseValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := next(d)
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := next(d)
		return list, err
	}
	return token, nil
}

// next returns the next token of a value that has not come to its end.
func next(d *json.Decoder) (json.Token, error) {
	token, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}

// A Pointer names a place in a document. The zero Pointer is the whole document.
type Pointer struct{ names []string }

// ParsePointer reads a pointer as RFC 6901 writes it: "/data/0/id"; "" is the whole
// document.
func ParsePointer(text string) (Pointer, error) {
	if text == "" {
		return Pointer{}, nil
	}
	if text[0] != '/' {
		return Pointer{}, fmt.Errorf("%q is not a JSON pointer: it begins with a slash, as in %q", text, "/"+strings.ReplaceAll(text, ".", "/"))
	}
	names := strings.Split(text[1:], "/")
	for i, name := range names {
		for at := strings.IndexByte(name, '~'); at >= 0; {
			if at+1 == len(name) || name[at+1] != '0' && name[at+1] != '1' {
				return Pointer{}, fmt.Errorf("%q is not a JSON pointer: a tilde is written as ~0, and a slash in a name as ~1", text)
			}
			next := strings.IndexByte(name[at+1:], '~')
			if next < 0 {
				break
			}
			at += 1 + next
		}
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return Pointer{names}, nil
}

// String returns the pointer as RFC 6901 writes it.
func (p Pointer) String() string {
	var b strings.Builder
	for _, name := range p.names {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// find returns the value at p.
func (d Document) find(p Pointer) (any, bool) {
	value := d.value
	for _, name := range p.names {
		switch v := value.(type) {
		case map[string]any:
			inner, ok := v[name]
			if !ok {
				return nil, false
			}
			value = inner
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != name {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// Has reports whether the document has a value at p, null included.
func (d Document) Has(p Pointer) bool {
	_, ok := d.find(p)
	return ok
}

// Text returns the value at p as text: a string, a number as it was written, or true or
// false. Null, objects, lists and what is not there are no text.
func (d Document) Text(p Pointer) (string, bool) {
	value, ok := d.find(p)
	if !ok {
		return "", false
	}
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// JSON returns the value at p as JSON.
func (d Document) JSON(p Pointer) ([]byte, bool) {
	value, ok := d.find(p)
	if !ok {
		return nil, false
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil { // what was read can be written
		return nil, false
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
}

// A Condition holds if the text at a place is one of several.
type Condition struct {
	At Pointer
	Is []string
}

// Fulfils reports whether every condition holds.
func (d Document) Fulfils(all []Condition) bool {
	return !slices.ContainsFunc(all, func(c Condition) bool {
		text, ok := d.Text(c.At)
		return !ok || !slices.Contains(c.Is, text)
	})
}
