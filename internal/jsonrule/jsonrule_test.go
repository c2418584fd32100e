package jsonrule_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/jsonrule"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

const payment = `{"id": "ch_1", "amount": 12.50, "paid": true, "none": null, "a/b": {"m~n": [10, {"x": "<y>"}]}, "": 1}`

func TestTextAtAPointer(t *testing.T) {
	t.Parallel()
	doc, err := jsonrule.Parse([]byte(payment))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at, text  string
		ok, there bool
	}{
		{"/id", "ch_1", true, true},
		{"/amount", "12.50", true, true},
		{"/paid", "true", true, true},
		{"/", "1", true, true},
		{"/none", "", false, true},
		{"/a~1b/m~0n/0", "10", true, true},
		{"/a~1b/m~0n/1/x", "<y>", true, true},
		{"/a~1b/m~0n/01", "", false, false},
		{"/a~1b/m~0n/-1", "", false, false},
		{"/a~1b/m~0n/2", "", false, false},
		{"/a~1b/m~0n/-", "", false, false},
		{"/id/x", "", false, false},
		{"/missing", "", false, false},
		{"/a~1b", "", false, true},
		{"", "", false, true},
	} {
		p, err := jsonrule.ParsePointer(c.at)
		if err != nil {
			t.Fatalf("%s: %v", c.at, err)
		}
		if p.String() != c.at {
			t.Errorf("%s is written as %s", c.at, p)
		}
		if text, ok := doc.Text(p); text != c.text || ok != c.ok {
			t.Errorf("%s is %q, %t", c.at, text, ok)
		}
		if doc.Has(p) != c.there {
			t.Errorf("%s is there: %t", c.at, doc.Has(p))
		}
	}
	p, _ := jsonrule.ParsePointer("/a~1b/m~0n/1")
	if text, ok := doc.JSON(p); !ok || string(text) != `{"x":"<y>"}` {
		t.Errorf("as JSON it is %s, %t", text, ok)
	}
	missing, _ := jsonrule.ParsePointer("/missing")
	if text, ok := doc.JSON(missing); ok || len(text) > 0 {
		t.Errorf("what is missing is %s as JSON", text)
	}
	none, _ := jsonrule.ParsePointer("/none")
	if text, ok := doc.JSON(none); !ok || string(text) != "null" {
		t.Errorf("null is %s as JSON, %t", text, ok)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	doc, _ := jsonrule.Parse([]byte(payment))
	id, _ := jsonrule.ParsePointer("/id")
	paid, _ := jsonrule.ParsePointer("/paid")
	none, _ := jsonrule.ParsePointer("/none")
	for _, c := range []struct {
		all  []jsonrule.Condition
		want bool
	}{
		{nil, true},
		{[]jsonrule.Condition{{id, []string{"ch_0", "ch_1"}}, {paid, []string{"true"}}}, true},
		{[]jsonrule.Condition{{id, []string{"ch_1"}}, {paid, []string{"false"}}}, false},
		{[]jsonrule.Condition{{none, []string{""}}}, false},
		{[]jsonrule.Condition{{id, nil}}, false},
	} {
		if got := doc.Fulfils(c.all); got != c.want {
			t.Errorf("%v: %t", c.all, got)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `{"a":1,"a":2}`, `{} {}`, `[1,]`, `nul`, `{"a" 1}`, `{a:1}`} {
		if _, err := jsonrule.Parse([]byte(text)); err == nil {
			t.Errorf("%s is read as a document", text)
		}
	}
	for _, text := range []string{`a`, `data.id`, `/~`, `/~2`, `/a~0b~`} {
		if _, err := jsonrule.ParsePointer(text); err == nil {
			t.Errorf("%s is read as a pointer", text)
		}
	}
}

// A document that was cut off must not look like one that is not there.
func TestCutOffAndDeepDocuments(t *testing.T) {
	t.Parallel()
	for n := range len(payment) - 1 {
		if _, err := jsonrule.Parse([]byte(payment[:n])); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s is read: %v", payment[:n], err)
		}
	}
	if _, err := jsonrule.Parse(nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("nothing is read: %v", err)
	}
	for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
		nested := func(levels int) []byte {
			return []byte(strings.Repeat(brackets[0], levels) + "1" + strings.Repeat(brackets[1], levels))
		}
		if _, err := jsonrule.Parse(nested(200)); err != nil {
			t.Errorf("200 levels of %s: %v", brackets[0], err)
		}
		if _, err := jsonrule.Parse(nested(201)); err == nil || !strings.Contains(err.Error(), "200 levels") {
			t.Errorf("201 levels of %s: %v", brackets[0], err)
		}
	}
}

func FuzzJSONRule(f *testing.F) {
	hammer.Add(f, []byte(payment))
	hammer.Fuzz(f, func(t *testing.T, text []byte) {
		doc, err := jsonrule.Parse(text)
		if err != nil {
			return
		}
		again, ok := doc.JSON(jsonrule.Pointer{})
		if !ok {
			t.Fatal("the whole document is not there")
		}
		if _, err := jsonrule.Parse(again); err != nil {
			t.Errorf("%s was read, and is written as %s: %v", text, again, err)
		}
	})
}
