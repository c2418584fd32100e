package answerrule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

const text = `{"data":{"id":"pi_7","name":"a \"quoted\"\nname","amount":12.50,"paid":true,"empty":"","list":[1,{"x":null}],"gap":"two words","evil":"1,\"admin\":true","says":"\"a\" <b> & c\\d"}}`

var places = answerrule.Vocabulary{Names: []string{"key", "scope"}, Pointed: []string{"request"}, Document: true}

// newRule returns a rule, or all that is wrong with it.
func newRule(a answerrule.Answer) (*answerrule.Rule, error) {
	var all error
	r := answerrule.New(&a, &places, func(field string, err error) {
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", field, err))
		}
	})
	return r, all
}

// build returns the answer that the rule makes of the document.
func build(t *testing.T, a answerrule.Answer) (retrysafe.Result, error) {
	t.Helper()
	r, err := newRule(a)
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	d, err := jsonrule.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r.Result(&answerrule.Source{Document: d, Body: []byte(text), Kind: "text/odd", Value: func(p *answerrule.Place) (string, bool) {
		return map[string]string{"key": "k-1", "request": "at " + p.At.String()}[p.Name], p.Name != "scope"
	}})
}

func TestAnswersAreBuiltByTheRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, body, from, want, wantKind string }{
		{"", `{"payment":"{/data/id}","amount":{/data/amount},"paid":{/data/paid}}`, "", `{"payment":"pi_7","amount":12.50,"paid":true}`, "application/json"},
		{"", `{"name":"{/data/name}","none":"{/data/empty}","o":{}}`, "", `{"name":"a \"quoted\"\nname","none":"","o":{}}`, "application/json"},
		{"", `{"key":"{key}","of":"{request:/a/0}"}`, "", `{"key":"k-1","of":"at /a/0"}`, "application/json"},
		{"", "", "/data/list", `[1,{"x":null}]`, "application/json"},
		{"application/problem+json", `{"detail":"{/data/gap}"}`, "", `{"detail":"two words"}`, "application/problem+json"},
		{"text/plain", "{/data/id} is {done}, see {/data/gap}", "", "", ""},
		{"text/plain", "{/data/id} is done, see {/data/gap}", "", "pi_7 is done, see two words", "text/plain"},
		{"text/plain", "it says {/data/says}", "", `it says "a" <b> & c\d`, "text/plain"},
		{"", `["{/data/says}"]`, "", `["\"a\" <b> & c\\d"]`, "application/json"},
		{"text/plain; charset=utf-8", "{/data/says}", "", `"a" <b> & c\d`, "text/plain; charset=utf-8"},
		{"text/xml", "<done/>", "", "<done/>", "text/xml"},
		{"text/xml", "", "", "", ""}, // no body has no type
		{"text/own", "", "response", text, "text/own"},
		{"application/list+json", "", "/data/list", `[1,{"x":null}]`, "application/list+json"},
		{"", "", "response", text, "text/odd"},
		{"", "", "", "", ""},
	} {
		a := answerrule.Answer{Status: 201, Body: c.body, BodyFrom: c.from}
		if c.kind != "" {
			a.Header = map[string]string{"content-type": c.kind}
		}
		if strings.Contains(c.body, "{done}") {
			if _, err := newRule(a); err == nil || !strings.Contains(err.Error(), "there is no placeholder {done}") {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		got, err := build(t, a)
		if kind := strings.Join(got.Header["Content-Type"], ""); err != nil || got.Status != 201 || string(got.Body) != c.want || kind != c.wantKind {
			t.Errorf("%q makes %d %q %q, %v; want %q %q", c.body+c.from, got.Status, kind, got.Body, err, c.wantKind, c.want)
		}
	}
}

func TestHeadersAreTemplates(t *testing.T) {
	t.Parallel()
	got, err := build(t, answerrule.Answer{Status: 201, Header: map[string]string{"location": "/payments/{/data/id}", "x-key": "{key}"}})
	if err != nil || got.Header["Location"][0] != "/payments/pi_7" || got.Header["X-Key"][0] != "k-1" {
		t.Errorf("%v, %v", got.Header, err)
	}
}

// A document cannot put members, headers or lines where the rule has a value, and what it
// lacks is not made up.
func TestDocumentsDoNotWriteTheAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, body, from string }{
		{"", `{"amount":{/data/evil}}`, ""},
		{"", `{"id":"{/data/missing}"}`, ""},
		{"", `{"id":"{/data/list}"}`, ""},
		{"", `{"id":"{scope}"}`, ""},
		{"", "", "/data/missing"},
		{"", "[1] {/data/name}", ""},
		{"{/data/name}", "", ""},
		{"{/data/missing}", "", ""},
	} {
		if got, err := build(t, answerrule.Answer{Status: 200, Header: map[string]string{"X-A": c.header}, Body: c.body, BodyFrom: c.from}); err == nil {
			t.Errorf("%+v makes %v %s", c, got.Header, got.Body)
		}
	}
}

// A text has no quotes that hide what is missing.
func TestTextsHaveNoHoles(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"it is {/data/missing}", "for {scope}", "{/data/list}", "by {/data/name}"} {
		if got, err := build(t, answerrule.Answer{Status: 200, Header: map[string]string{"Content-Type": "text/plain"}, Body: body}); err == nil || !strings.Contains(err.Error(), "there is no {") {
			t.Errorf("%s makes %q, %v", body, got.Body, err)
		}
	}
}

// What comes from a provider must not put lines or other headers into an answer.
func TestWholeBodyHasTheTypeThatItCameWith(t *testing.T) {
	t.Parallel()
	r, err := newRule(answerrule.Answer{Status: 200, BodyFrom: answerrule.WholeBody})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind, body string
		want       []string
		ok         bool
	}{
		{"text/odd", "a", []string{"text/odd"}, true},
		{"", "a", nil, true},
		{"text/odd", "", nil, true},
		{"text/odd\r\nX-A: b", "a", nil, false},
	} {
		got, err := r.Result(&answerrule.Source{Body: []byte(c.body), Kind: c.kind})
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.kind, err)
		}
		if kind, there := got.Header["Content-Type"]; c.ok && (!slices.Equal(kind, c.want) || there != (c.want != nil) || string(got.Body) != c.body) {
			t.Errorf("%q with the type %q has %q and %q", c.body, c.kind, got.Body, got.Header)
		}
	}
}

func TestEscapes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		json, text string
		inText     bool
	}{
		"":             {"", "", true},
		"a \"b\" \\":   {`a \"b\" \\`, "a \"b\" \\", true},
		"<é&>":         {"<é&>", "<é&>", true},
		"a\nb":         {`a\nb`, "", false},
		"\x1f":         {`\u001f`, "", false},
		"a\x7f":        {"a\x7f", "", false},
		"~ \u0080":     {"~ \u0080", "~ \u0080", true},
		"a\U0001f600b": {"a\U0001f600b", "a\U0001f600b", true},
	} {
		if got, ok := answerrule.InJSON(value); got != want.json || !ok {
			t.Errorf("%q is %q in JSON, %t", value, got, ok)
		}
		if got, ok := answerrule.InText(value); got != want.text || ok != want.inText {
			t.Errorf("%q is %q in text, %t", value, got, ok)
		}
	}
	for _, value := range []string{"\xff", "a\xc3", "\xed\xa0\x80"} { // no text at all
		if got, ok := answerrule.InJSON(value); ok {
			t.Errorf("%q is %q in JSON", value, got)
		}
		if got, ok := answerrule.InText(value); ok {
			t.Errorf("%q is %q in text", value, got)
		}
	}
}

func TestNearestName(t *testing.T) {
	t.Parallel()
	known := []string{"key", "scope", "request"}
	for written, want := range map[string]string{
		"key": "key", "kye": "key", "ke": "key", "keys": "key", "k": "key", "scop": "scope", "cope": "scope", "skope": "scope", "scopes_": "scope",
		"reqest": "request", "requests": "request", "requestor": "request", "quest": "request",
		"elephant": "", "s": "", "": "", "sco": "scope", "rquet": "request", "requests_s": "",
	} {
		got := answerrule.Nearest(written, known)
		if want != "" {
			want = "; did you mean {" + want + "}?"
		}
		if got != want {
			t.Errorf("%q is near to %q, want %q", written, got, want)
		}
	}
	if got := answerrule.Nearest("kex", []string{"kax", "kez", "kex", "kes"}); !strings.Contains(got, "{kex}") {
		t.Errorf("the nearest of several is %q", got)
	}
	if got := answerrule.Nearest("ab", []string{"ac", "ad"}); !strings.Contains(got, "{ac}") {
		t.Errorf("the first of two that are as near is not taken: %q", got)
	}
}

// What a vocabulary does not have is text, or no placeholder.
func TestVocabularyWithoutADocument(t *testing.T) {
	t.Parallel()
	v := answerrule.Vocabulary{Names: []string{"key"}}
	if got := v.String(); got != "{key}" {
		t.Errorf("the places are %s", got)
	}
	for text, ok := range map[string]bool{"{key}": true, "a {/": true, "{/a}": false, "{key:/a}": false, "{x:/a}": false, "{}": true} {
		if _, err := v.Parse(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWrongRulesAreRefused(t *testing.T) {
	t.Parallel()
	header := func(name, value string) answerrule.Answer {
		return answerrule.Answer{Status: 200, Header: map[string]string{name: value}}
	}
	for want, a := range map[string]answerrule.Answer{
		"status: it is 0;":                                      {},
		"status: it is 600;":                                    {Status: 600},
		"status: it is 199;":                                    {Status: 199},
		"body_from: \"data\" is not a JSON pointer":             {Status: 599, BodyFrom: "data"},
		`body: the place "{/data" has no closing brace`:         {Status: 200, Body: "{/data"},
		"a tilde is written as ~0":                              {Status: 200, Body: "{/a~2}"},
		"body_from: body is there too":                          {Status: 200, Body: "1", BodyFrom: "/data"},
		"or write response for the whole body":                  {Status: 200, BodyFrom: "data"},
		"body: it is not JSON":                                  {Status: 200, Body: "done"},
		"did you mean {key}?":                                   {Status: 200, Body: `"{kye}"`},
		"{request} needs a JSON pointer":                        {Status: 200, Body: `"{request}"`},
		"{request/a} needs a JSON pointer":                      {Status: 200, Body: `"{request/a}"`},
		"{key:/a} takes no pointer: write {key}":                {Status: 200, Body: `"{key:/a}"`},
		"headers.A: the place":                                  header("A", "{/"),
		"headers.Set-Cookie: ":                                  header("Set-Cookie", "a"),
		"headers.A: the value contains a control":               header("A", "a\nb"),
		"the type of the body takes no placeholder":             header("Content-Type", "{/a}"),
		"headers.Content-Type: the place":                       header("Content-Type", "{/"),
		"is not known; use application/json or text/plain":      {Status: 200, Header: map[string]string{"content-type": "text/xml"}, Body: "<a>{key}</a>"},
		"there are {key} {scope} {request:/pointer} {/pointer}": {Status: 200, Body: `"{elephant}"`},
	} {
		if _, err := newRule(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", a, err, want)
		}
	}
	for _, status := range []int{200, 599} {
		if _, err := newRule(answerrule.Answer{Status: status}); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
	twice := answerrule.Answer{Status: 200, Header: map[string]string{"x-a": "1", "X-A": "2"}}
	if _, err := newRule(twice); err == nil || !strings.Contains(err.Error(), "it is there twice") {
		t.Errorf("a header twice: %v", err)
	}
}
