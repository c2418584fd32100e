package httpresolver

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// names are all names by which one operation may be known, and what was replied about it.
type names struct {
	rec  *retrysafe.Record
	opts *Options

	request, response    jsonrule.Document
	readRequest, hasBody bool
}

// downstreamKey returns the key that the other side got. If the record's step log ends with
// an open call, it is that call's.
func (n *names) downstreamKey() string {
	call := n.opts.Call
	steps, _ := n.rec.Checkpoint.Steps() // a checkpoint without a step log has none
	if last := len(steps); last > 0 && steps[last-1].Open {
		call = steps[last-1].Name
	}
	return retrysafe.DownstreamKey(n.opts.Namespace, n.rec.Ref, call)
}

// The placeholders of a template. Those with a pointer are written {request:/pointer}.
const (
	fromRequest  = "request"
	fromResponse = "response"
)

var plain = []string{"key", "key_hash", "downstream_key", "provider_ref", "operation", "scope"}

// value returns the value of a placeholder, and whether there is one.
func (n *names) value(p *placeholder) (text string, ok bool) {
	switch p.name {
	case "key":
		text = n.rec.Key
	case "key_hash":
		text = retrysafe.HashKey(n.rec.Key)
	case "downstream_key":
		text = n.downstreamKey()
	case "provider_ref":
		text = n.rec.ProviderRef
	case "operation":
		text = n.rec.Operation
	case "scope":
		text = n.rec.Scope
	case fromRequest:
		if !n.readRequest {
			n.readRequest = true
			if body, ok := n.body(); ok {
				var err error
				n.request, err = jsonrule.Parse(body)
				n.hasBody = err == nil
			}
		}
		if n.hasBody {
			text, _ = n.request.Text(p.at)
		}
	case fromResponse:
		text, _ = n.response.Text(p.at)
	}
	return text, text != ""
}

func (n *names) body() ([]byte, bool) {
	if n.opts.Body == nil {
		return nil, false
	}
	return n.opts.Body(*n.rec)
}

// A placeholder is a place in a template that a value is put into.
type placeholder struct {
	text string // as it is written
	name string
	at   jsonrule.Pointer
}

// A template is text with placeholders: texts[0] holes[0] texts[1] …
type template struct {
	texts []string
	holes []placeholder
}

// holePattern matches what looks like a placeholder. Other braces are text, such as those
// of a JSON object.
var holePattern = regexp.MustCompile(`\{([a-z_]+)(:[^{}]*)?\}`)

// parseTemplate reads a template. Response says whether it may refer to the reply.
func parseTemplate(text string, response bool) (t template, err error) {
	known := append(slices.Clone(plain), fromRequest)
	if response {
		known = append(known, fromResponse)
	}
	at := 0
	for _, m := range holePattern.FindAllStringSubmatchIndex(text, -1) {
		p := placeholder{text: text[m[0]:m[1]], name: text[m[2]:m[3]]}
		pointed := p.name == fromRequest || p.name == fromResponse
		switch {
		case !slices.Contains(known, p.name):
			meant := nearest(p.name, known)
			if meant == "" {
				meant = "; there are " + listed(known)
			}
			return t, fmt.Errorf("there is no placeholder %s%s", p.text, meant)
		case pointed && m[4] < 0:
			return t, fmt.Errorf("%s needs a JSON pointer, as in {%s:/id}", p.text, p.name)
		case !pointed && m[4] >= 0:
			return t, fmt.Errorf("%s takes no pointer: write {%s}", p.text, p.name)
		case pointed:
			if p.at, err = jsonrule.ParsePointer(text[m[4]+1 : m[5]]); err != nil {
				return t, err
			}
		}
		t.texts, t.holes = append(t.texts, text[at:m[0]]), append(t.holes, p)
		at = m[1]
	}
	t.texts = append(t.texts, text[at:])
	return t, nil
}

// listed returns the placeholders as they are written.
func listed(known []string) string {
	var all []string
	for _, name := range known {
		if name == fromRequest || name == fromResponse {
			name += ":/pointer"
		}
		all = append(all, "{"+name+"}")
	}
	return strings.Join(all, " ")
}

// nearest returns "; did you mean {x}?" for the name that differs little from what was
// written, or nothing.
func nearest(written string, known []string) string {
	best, least := "", 3
	for _, name := range known {
		if d := distance(written, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean {" + best + "}?"
}

// distance counts the letters to insert, remove or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			differs := 1
			if a[i] == b[j] {
				differs = 0
			}
			before, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, before+differs)
		}
	}
	return row[len(b)]
}

// An escape makes a value safe for the place that it stands in. It is false for a value
// that cannot stand there.
type escape func(value string) (string, bool)

func inPath(v string) (string, bool)  { return url.PathEscape(v), true }
func inQuery(v string) (string, bool) { return url.QueryEscape(v), true }

// inJSON is for a place between the quotes of a JSON string, or for a number.
func inJSON(v string) (string, bool) {
	if !utf8.ValidString(v) {
		return "", false
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", false
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return text[1 : len(text)-1], true
}

// inText is for plain text and for the value of a header.
func inText(v string) (string, bool) {
	if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	return v, true
}

// fill returns the template with the values of an operation. If one is missing, or cannot
// stand in its place, lacks is its placeholder.
func (t *template) fill(n *names, escapes func(hole int) escape) (text, lacks string) {
	var b strings.Builder
	b.WriteString(t.texts[0])
	for i := range t.holes {
		v, ok := n.value(&t.holes[i])
		if ok {
			v, ok = escapes(i)(v)
		}
		if !ok {
			return "", t.holes[i].text
		}
		b.WriteString(v)
		b.WriteString(t.texts[i+1])
	}
	return b.String(), ""
}

// always is for a template whose places are all alike.
func always(e escape) func(int) escape { return func(int) escape { return e } }

// An address is a URL with placeholders in its path and query.
type address struct {
	template
	query int // holes from here on are in the query
}

// parseAddress reads the template of a URL, and returns its host.
func parseAddress(text string, plainHTTP bool) (a address, host string, err error) {
	if a.template, err = parseTemplate(text, false); err != nil {
		return a, "", err
	}
	// Without its placeholders it has to be a URL already: they stand for text in it.
	bare, query := "", false
	a.query = len(a.holes)
	for i, part := range a.texts {
		if strings.ContainsAny(part, "{}") {
			return a, "", fmt.Errorf("there is a brace that belongs to no placeholder; a placeholder is one of %s", listed(append(slices.Clone(plain), fromRequest)))
		}
		bare += part
		if strings.Contains(part, "#") {
			return a, "", fmt.Errorf("there is a fragment (#), which is never sent")
		}
		if i == len(a.holes) {
			break
		}
		if rest, ok := strings.CutPrefix(bare, "http://"); ok && !strings.Contains(rest, "/") {
			return a, "", fmt.Errorf("%s stands before the path; the host is the same for every question", a.holes[i].text)
		}
		if rest, ok := strings.CutPrefix(bare, "https://"); ok && !strings.Contains(rest, "/") {
			return a, "", fmt.Errorf("%s stands before the path; the host is the same for every question", a.holes[i].text)
		}
		if query = query || strings.Contains(bare, "?"); query && a.query == len(a.holes) {
			a.query = i
		}
		bare += "x"
	}
	host, err = checkURL(bare, plainHTTP)
	return a, host, err
}

// fill returns the URL for an operation. A value that would make another path of it, as
// ".." does, cannot stand there.
func (a *address) fill(n *names) (text, lacks string) {
	text, lacks = a.template.fill(n, func(i int) escape {
		if i >= a.query {
			return inQuery
		}
		return inPath
	})
	if lacks != "" || len(a.holes) == 0 {
		return text, lacks
	}
	path, _, _ := strings.Cut(text, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return "", a.holes[0].text
		}
	}
	return text, ""
}
