package answerrule_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

const text = `{"data":{"id":"pi_7","name":"a \"quoted\"\nname","amount":12.50,"paid":true,"list":[1,{"x":null}],"gap":"two words","evil":"1,\"admin\":true"}}`

func document(t *testing.T) jsonrule.Document {
	t.Helper()
	d, err := jsonrule.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAnswersAreBuiltByTheRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, from, want, kind string }{
		{`{"payment":"{/data/id}","amount":{/data/amount},"paid":{/data/paid}}`, "", `{"payment":"pi_7","amount":12.50,"paid":true}`, "application/json"},
		{`{"name":"{/data/name}"}`, "", `{"name":"a \"quoted\"\nname"}`, "application/json"},
		{"", "/data/list", `[1,{"x":null}]`, "application/json"},
		{"see {{/not a place} and {/data/id}", "", "see {/not a place} and pi_7", "application/json"},
		{"done", "", "done", "application/json"},
		{"", "", "", ""},
	} {
		r, err := answerrule.New(201, nil, c.body, c.from)
		if err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		status, header, body, err := r.Build(document(t))
		kind := strings.Join(header["Content-Type"], "")
		if err != nil || status != 201 || string(body) != c.want || kind != c.kind {
			t.Errorf("%q makes %d %q %q, %v; want %q %q", c.body+c.from, status, kind, body, err, c.kind, c.want)
		}
	}
}

func TestHeadersAreTemplates(t *testing.T) {
	t.Parallel()
	r, err := answerrule.New(201, map[string]string{"location": "/payments/{/data/id}", "content-type": "text/plain"}, "ok", "")
	if err != nil {
		t.Fatal(err)
	}
	_, header, _, err := r.Build(document(t))
	if err != nil || header["Location"][0] != "/payments/pi_7" || header["Content-Type"][0] != "text/plain" {
		t.Errorf("%v, %v", header, err)
	}
}

// A document cannot put members, headers or lines where the rule has a value.
func TestDocumentsDoNotWriteTheAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, body, from string }{
		{"", `{"amount":{/data/evil}}`, ""},
		{"", `{"id":"{/data/missing}"}`, ""},
		{"", `{"id":"{/data/list}"}`, ""},
		{"", "", "/data/missing"},
		{"{/data/name}", "", ""},
		{"{/data/gap}", "", ""},
	} {
		r, err := answerrule.New(200, map[string]string{"X-A": c.header}, c.body, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if _, header, body, err := r.Build(document(t)); err == nil {
			t.Errorf("%+v makes %v %s", c, header, body)
		}
	}
}

func TestWrongRulesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		body, from string
	}{
		{0, "", ""}, {199, "", ""}, {600, "", ""},
		{200, "{/data", ""}, {200, "{/a~2}", ""}, {200, "x", "/data"}, {200, "", "data"},
	} {
		if _, err := answerrule.New(c.status, nil, c.body, c.from); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if _, err := answerrule.New(200, map[string]string{"A": "{/"}, "", ""); err == nil {
		t.Error("a header with half a place is accepted")
	}
}
