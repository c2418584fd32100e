// Package answerrule builds the answer of an operation from a provider's document, a reply
// or an event, by a rule: a status, headers and a body with places that values are put
// into. Resolvers and webhooks have the same rules.
package answerrule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// An Answer says what an answer looks like. The values of Header, and Body, are
// templates. BodyFrom takes the body from the document instead: a JSON pointer, or
// [WholeBody].
type Answer struct {
	Status         int
	Header         map[string]string
	Body, BodyFrom string
}

// WholeBody is [Answer.BodyFrom] for the provider's document as it came.
const WholeBody = "response"

// A Rule is an [Answer] that has been checked. It is safe for concurrent use.
type Rule struct {
	status int
	header map[string]Template
	kind   string // the Content-Type; empty for that of the document
	body   Template
	inBody Escape
	json   bool
	whole  bool
	from   *jsonrule.Pointer
}

// New checks an answer whose templates have the places of a vocabulary, and tells refuse
// what is wrong with its fields. The body is JSON, unless the header says that it is
// something else.
func New(a *Answer, v *Vocabulary, refuse func(field string, err error)) *Rule {
	r := &Rule{status: a.Status, header: map[string]Template{}, inBody: InJSON}
	if r.status < 200 || r.status > 599 {
		refuse("status", fmt.Errorf("it is %d; an answer needs a status between 200 and 599", r.status))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		canonical := http.CanonicalHeaderKey(name)
		value, err := v.Parse(a.Header[name])
		if err == nil {
			err = headerkind.CheckReplayed(canonical, strings.Join(value.Texts, ""))
		}
		if _, twice := r.header[canonical]; twice && err == nil {
			err = errors.New("it is there twice")
		}
		if canonical == contentType && len(value.Places) > 0 && err == nil {
			err = errors.New("the type of the body takes no placeholder")
		}
		refuse("headers."+name, err)
		r.header[canonical] = value
	}
	if t, ok := r.header[contentType]; ok {
		r.kind = t.Texts[0]
		delete(r.header, contentType)
	}
	switch {
	case a.Body != "" && a.BodyFrom != "":
		refuse("body_from", errors.New("body is there too; keep one of them"))
	case a.BodyFrom == WholeBody:
		r.whole = true
	case a.BodyFrom != "":
		at, err := jsonrule.ParsePointer(a.BodyFrom)
		if err != nil {
			err = fmt.Errorf("%w; or write %s for the whole body", err, WholeBody)
		}
		refuse("body_from", err)
		r.from, r.kind = &at, cmp.Or(r.kind, jsonKind)
	case a.Body != "":
		refuse("body", r.parseBody(a.Body, v))
	}
	return r
}

const (
	contentType = "Content-Type"
	jsonKind    = "application/json"
)

func (r *Rule) parseBody(text string, v *Vocabulary) (err error) {
	if r.body, err = v.Parse(text); err != nil {
		return err
	}
	r.kind = cmp.Or(r.kind, jsonKind)
	kind := MediaType(r.kind)
	switch r.json = IsJSON(kind); {
	case r.json && len(r.body.Places) == 0:
		if _, err := jsonrule.Parse([]byte(text)); err != nil {
			return fmt.Errorf("it is not JSON: %w; for another kind of body add the header Content-Type", err)
		}
	case r.json:
	case kind == "text/plain":
		r.inBody = InText
	case len(r.body.Places) > 0:
		return fmt.Errorf("how a value stands in a body of type %q is not known; use application/json or text/plain", kind)
	}
	return nil
}

// A Source is what an answer is built from.
type Source struct {
	// Document is the provider's document, and Body and Kind the bytes and the
	// Content-Type that it came with.
	Document jsonrule.Document
	Body     []byte
	Kind     string
	// Value returns the value of a place that is not in the document. It may be nil if
	// the vocabulary has no other.
	Value func(*Place) (string, bool)
}

func (s *Source) value(p *Place) (string, bool) {
	if p.Name == "" {
		return s.Document.Text(p.At)
	}
	return s.Value(p)
}

// Result returns the answer. A value that is missing is an error: an answer with a hole in
// it is none.
func (r *Rule) Result(s *Source) (out retrysafe.Result, err error) {
	out = retrysafe.Result{Status: r.status, Header: map[string][]string{}}
	for name, value := range r.header {
		text, lacks := value.Fill(s.value, Always(InText))
		if lacks != "" {
			return out, fmt.Errorf("header %s: there is no %s", name, lacks)
		}
		out.Header[name] = []string{text}
	}
	kind := r.kind
	switch {
	case r.whole:
		out.Body, kind = s.Body, cmp.Or(kind, s.Kind)
		if err := headerkind.CheckReplayed(contentType, kind); err != nil {
			return out, fmt.Errorf("header Content-Type: %w", err)
		}
	case r.from != nil:
		part, ok := s.Document.JSON(*r.from)
		if !ok {
			return out, fmt.Errorf("there is nothing at %s", r.from)
		}
		out.Body = part
	case len(r.body.Texts) > 0:
		text, lacks := r.body.Fill(s.value, Always(r.inBody))
		if lacks != "" {
			return out, fmt.Errorf("there is no %s", lacks)
		}
		out.Body = []byte(text)
		if r.json {
			if _, err := jsonrule.Parse(out.Body); err != nil {
				return out, fmt.Errorf("with its values it is not JSON: %w; a text stands between quotes", err)
			}
		}
	}
	if kind != "" && len(out.Body) > 0 {
		out.Header[contentType] = []string{kind}
	}
	return out, nil
}

// MediaType returns the type that a Content-Type names.
func MediaType(text string) string {
	kind, _, err := mime.ParseMediaType(text)
	if err != nil {
		return text
	}
	return kind
}

// IsJSON reports whether bodies of a media type are JSON.
func IsJSON(kind string) bool { return kind == jsonKind || strings.HasSuffix(kind, "+json") }
