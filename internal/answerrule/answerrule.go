// Package answerrule builds the answer of an operation from a provider's document, by a
// rule: a status, headers and a body with places that the document fills.
package answerrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// A Rule says what an answer looks like. It is safe for concurrent use.
type Rule struct {
	status int
	header map[string]Template
	body   Template
	from   *jsonrule.Pointer
}

// New returns a rule. The values of the header are templates. The body is one too, or
// it is the JSON at the pointer from. A body without a Content-Type gets
// application/json.
func New(status int, header map[string]string, body, from string) (*Rule, error) {
	if status < 200 || status > 599 {
		return nil, fmt.Errorf("the status is %d; an answer has one from 200 to 599", status)
	}
	r := &Rule{status: status, header: make(map[string]Template)}
	for name, text := range header {
		t, err := ParseTemplate(text)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		r.header[http.CanonicalHeaderKey(name)] = t
	}
	var err error
	if r.body, err = ParseTemplate(body); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if from != "" {
		if body != "" {
			return nil, errors.New("the body is a text or the JSON at a place of the document, not both")
		}
		p, err := jsonrule.ParsePointer(from)
		if err != nil {
			return nil, err
		}
		r.from = &p
	}
	if _, ok := r.header["Content-Type"]; !ok && (body != "" || from != "") {
		r.header["Content-Type"] = Template{parts: []part{{text: "application/json"}}}
	}
	return r, nil
}

// Build returns the answer that a document makes. If the document lacks a value that the
// rule needs, there is no answer.
func (r *Rule) Build(d jsonrule.Document) (status int, header map[string][]string, body []byte, err error) {
	header = make(map[string][]string, len(r.header))
	for name, t := range r.header {
		value, err := t.fill(d, headerText)
		if err != nil {
			return 0, nil, nil, fmt.Errorf("header %s: %w", name, err)
		}
		header[name] = []string{value}
	}
	if r.from != nil {
		body, ok := d.JSON(*r.from)
		if !ok {
			return 0, nil, nil, fmt.Errorf("body: there is nothing at %s", *r.from)
		}
		return r.status, header, body, nil
	}
	text, err := r.body.JSON(d)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("body: %w", err)
	}
	return r.status, header, []byte(text), nil
}

// A Template is a text with places that a document fills: {/data/id} is the text at the
// pointer /data/id. A brace before a slash that begins no place is written twice: {{/.
type Template struct{ parts []part }

// A part is a text, and a place behind it.
type part struct {
	text  string
	place *jsonrule.Pointer
}

// ParseTemplate reads a template.
func ParseTemplate(text string) (Template, error) {
	var t Template
	kept := ""
	for {
		before, rest, ok := strings.Cut(text, "{/")
		switch {
		case !ok:
			if kept+before != "" {
				t.parts = append(t.parts, part{text: kept + before})
			}
			return t, nil
		case strings.HasSuffix(before, "{"):
			kept, text = kept+before+"/", rest
			continue
		}
		pointer, after, ok := strings.Cut(rest, "}")
		if !ok {
			return Template{}, fmt.Errorf("the place %q has no closing brace", "{/"+rest)
		}
		p, err := jsonrule.ParsePointer("/" + pointer)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, part{kept + before, &p})
		kept, text = "", after
	}
}

// JSON fills the template in. What is filled in is escaped as in a JSON string, so a
// place inside quotes cannot end them. If the template begins like a JSON object, list
// or string, the result is valid JSON, or an error.
func (t Template) JSON(d jsonrule.Document) (string, error) {
	text, err := t.fill(d, jsonText)
	if err != nil || len(t.parts) == 0 {
		return text, err
	}
	if first := strings.TrimLeft(t.parts[0].text, " \t\r\n"); first != "" && strings.Contains(`{["`, first[:1]) && !json.Valid([]byte(text)) {
		return "", errors.New("with the values of this document it is not JSON; put quotes around places that hold text")
	}
	return text, nil
}

func (t Template) fill(d jsonrule.Document, escape func(string) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.text)
		if p.place == nil {
			continue
		}
		value, ok := d.Text(*p.place)
		if !ok {
			return "", fmt.Errorf("there is no text, number or truth value at %s", *p.place)
		}
		value, err := escape(value)
		if err != nil {
			return "", fmt.Errorf("the value at %s %w", *p.place, err)
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// jsonText returns a value as it stands inside a JSON string.
func jsonText(value string) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return string(text[1 : len(text)-1]), nil
}

// headerText refuses a value that a header cannot have.
func headerText(value string) (string, error) {
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' {
			return "", errors.New("has characters that do not belong in a header")
		}
	}
	return value, nil
}
