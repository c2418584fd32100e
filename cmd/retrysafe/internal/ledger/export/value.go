package export

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// A Value says where in a record a text is. The zero Value is the key.
type Value struct {
	from from
	at   jsonrule.Pointer
	name string // of a header
}

// from is the part of a record that a value is read from.
type from uint8

const (
	fromKey from = iota
	fromDownstreamKey
	fromProviderRef
	fromScope
	fromStatus
	fromAnswer
	fromRequest
	fromHeader
)

// words are the values without a place inside them.
var words = map[string]from{
	"key": fromKey, "downstream_key": fromDownstreamKey, "provider_ref": fromProviderRef, "scope": fromScope, "status": fromStatus,
}

// prefixes are the values with a place inside them.
var prefixes = map[string]from{"answer": fromAnswer, "request": fromRequest, "header": fromHeader}

// ErrValue says that a text names no part of a record.
var ErrValue = errors.New("it is key, downstream_key, provider_ref, scope, status, a JSON pointer into the answer such as /id, request:/pointer or header:NAME")

// Words are the values that are one word, for suggestions.
func Words() []string { return []string{"key", "downstream_key", "provider_ref", "scope", "status"} }

// ParseValue reads a value: key, downstream_key, provider_ref, scope, status, /pointer into the answer's JSON,
// request:/pointer into that of the stored request, or header:NAME of the answer.
func ParseValue(text string) (Value, error) {
	if f, ok := words[text]; ok {
		return Value{from: f}, nil
	}
	if strings.HasPrefix(text, "/") {
		at, err := jsonrule.ParsePointer(text)
		return Value{from: fromAnswer, at: at}, err
	}
	prefix, rest, ok := strings.Cut(text, ":")
	f, known := prefixes[prefix]
	switch {
	case !ok || !known || rest == "":
		return Value{}, ErrValue
	case f == fromHeader:
		return Value{from: f, name: http.CanonicalHeaderKey(rest)}, nil
	}
	at, err := jsonrule.ParsePointer(rest)
	if err != nil {
		return Value{}, err
	}
	return Value{from: f, at: at}, nil
}

// String returns the value as [ParseValue] reads it.
func (v Value) String() string {
	for word, f := range words {
		if f == v.from {
			return word
		}
	}
	switch v.from {
	case fromHeader:
		return "header:" + v.name
	case fromRequest:
		return "request:" + v.at.String()
	default:
		return v.at.String()
	}
}

// A reading is a record whose values are read. Its documents are parsed when a value is first read from them.
type reading struct {
	*retrysafe.Record
	o               *Options
	answer, request *document
}

type document struct {
	jsonrule.Document
	ok bool
}

// text returns the value of a record, and whether it has one.
func (r *reading) text(v Value) (string, bool) {
	switch v.from {
	case fromKey:
		return r.Key, r.Key != ""
	case fromDownstreamKey:
		return retrysafe.DownstreamKey(r.o.Namespace, r.Ref, r.o.Call), true
	case fromProviderRef:
		return r.ProviderRef, r.ProviderRef != ""
	case fromScope:
		return r.Scope, r.Scope != ""
	case fromStatus:
		if r.Result == nil {
			return "", false
		}
		return strconv.Itoa(r.Result.Status), true
	case fromHeader:
		if r.Result == nil || len(r.Result.Header[v.name]) == 0 {
			return "", false
		}
		return r.Result.Header[v.name][0], true
	case fromRequest:
		if r.request == nil {
			r.request = parse(httpkey.StoredBody(*r.Record))
		}
		return r.request.text(v.at)
	default:
		if r.answer == nil {
			r.answer = new(document)
			if r.Result != nil && !r.Result.Omitted {
				r.answer = parse(r.Result.Body, true)
			}
		}
		return r.answer.text(v.at)
	}
}

// parse reads a document. A body that is no JSON has no values.
func parse(body []byte, there bool) *document {
	if !there {
		return new(document)
	}
	d, err := jsonrule.Parse(body)
	return &document{d, err == nil}
}

func (d *document) text(at jsonrule.Pointer) (string, bool) {
	if !d.ok {
		return "", false
	}
	return d.Text(at)
}

// field returns the text of a field. What a record does not have is empty.
func (r *reading) field(v Value) string {
	text, _ := r.text(v)
	return text
}

var _ fmt.Stringer = Value{}
