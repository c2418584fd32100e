package answerrule_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

const text = `{"data":{"id":"pi_7","name":"a \"quoted\"\nname","amount":12.50,"paid":true,"empty":"","list":[1,{"x":null}],"gap":"two words","evil":"1,\"admin\":true"}}`

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
		{"text/xml", "<done/>", "", "<done/>", "text/xml"},
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
		{"{/data/name}", "", ""},
		{"{/data/missing}", "", ""},
	} {
		if got, err := build(t, answerrule.Answer{Status: 200, Header: map[string]string{"X-A": c.header}, Body: c.body, BodyFrom: c.from}); err == nil {
			t.Errorf("%+v makes %v %s", c, got.Header, got.Body)
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
		"there are {key} {scope} {request:/pointer} {/pointer}": {Status: 200, Body: `"{elephant}"`},
	} {
		if _, err := newRule(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", a, err, want)
		}
	}
	twice := answerrule.Answer{Status: 200, Header: map[string]string{"x-a": "1", "X-A": "2"}}
	if _, err := newRule(twice); err == nil || !strings.Contains(err.Error(), "it is there twice") {
		t.Errorf("a header twice: %v", err)
	}
}
