package ledger_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

func TestJSONL(t *testing.T) {
	t.Parallel()
	c := ledger.Columns{ID: "id", Time: "at", TimeLayout: ledger.Unix, Fields: map[string]string{"amount": "amount", "paid": "paid"}}
	for _, r := range []struct {
		rule, line string
		want       ledger.Entry
	}{
		{"strings are texts", `{"id":"a","at":"60","amount":"1.00","paid":"no"}`, ledger.Entry{ID: "a", Time: time.Unix(60, 0).UTC(), Fields: map[string]string{"amount": "1.00", "paid": "no"}}},
		{"numbers stay as they are written", `{"amount":9007199254740993.10,"paid":1E+2,"at":0,"id":12}`, ledger.Entry{ID: "12", Time: time.Unix(0, 0).UTC(), Fields: map[string]string{"amount": "9007199254740993.10", "paid": "1E+2"}}},
		{"literals are words and null is nothing", `{"id":"a","at":null,"amount":null,"paid":true}`, ledger.Entry{ID: "a", Fields: map[string]string{"amount": "", "paid": "true"}}},
		{"what nobody asked for is skipped", ` { "x" : { "id" : [ "\"}" , { } ] } , "id" : "a" , "y":[],"at":"","paid" : false , "amount" : 1 ,"x":-1.5e3 } `, ledger.Entry{ID: "a", Fields: map[string]string{"amount": "1", "paid": "false"}}},
		{"escapes are undone, in names too", `{"\u0069d":"\ud83d\ude00\n\\u\"é\u00e9","at":"","amount":"\\","paid":"\ud800\udc00\udbff\udfff\ue000"}`, ledger.Entry{ID: "😀\n\\u\"éé", Fields: map[string]string{"amount": `\`, "paid": "\U00010000\U0010ffff\ue000"}}},
	} {
		for _, file := range []string{r.line, r.line + "\n", "\n \t\r\n" + r.line + "\r\n\n"} {
			got, err := collect(ledger.JSONL(strings.NewReader(file), c))
			if r.want.Line = 1; file[0] == '\n' {
				r.want.Line = 3
			}
			if err != nil || !reflect.DeepEqual(got, []ledger.Entry{r.want}) {
				t.Errorf("%s: %+v, %v\nwant %+v", r.rule, got, err, r.want)
			}
		}
	}
	// One member may be several parts of a row.
	c = ledger.Columns{ID: "id", Time: "id", TimeLayout: ledger.Unix, Fields: map[string]string{"x": "id", "y": "id"}}
	want := []ledger.Entry{{ID: "60", Line: 1, Time: time.Unix(60, 0).UTC(), Fields: map[string]string{"x": "60", "y": "60"}}}
	if rows, err := collect(ledger.JSONL(strings.NewReader(`{"id":60}`), c)); err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("one member for all: %+v, %v", rows, err)
	}
	if rows, err := collect(ledger.JSONL(strings.NewReader(""), c)); len(rows) != 0 || err != nil {
		t.Errorf("an empty file: %v, %v", rows, err)
	}
}

func TestJSONLIsStrict(t *testing.T) {
	t.Parallel()
	c := ledger.Columns{ID: "id", Fields: map[string]string{"amount": "amount"}}
	for _, r := range []struct{ rule, line, says string }{
		{"a line is an object", `["id","a"]`, "not a JSON object"},
		{"nothing else", `"id"`, "not a JSON object"},
		{"one", `{"id":"a","amount":1}{}`, "not a JSON object"},
		{"whole", `{"id":"a","amount":1`, "not a JSON object"},
		{"valid", `{"id":"a","amount":01}`, "not a JSON object"},
		{"not deeper than can be", `{"id":"a","amount":1,"x":` + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + "}", "not a JSON object"},
		{"each member is there", `{"id":"a"}`, `the member "amount" is missing`},
		{"in these letters", `{"ID":"a","amount":1}`, `the member "id" is missing`},
		{"once", `{"id":"a","amount":1,"amount":2}`, `the member "amount" is there twice`},
		{"however it is written", `{"id":"a","\u0061mount":1,"amount":1}`, `the member "amount" is there twice`},
		{"and has a text", `{"id":"a","amount":{"value":1}}`, `the member "amount": an array or object`},
		{"the id is not empty", `{"id":"","amount":1}`, `the id "id" is empty`},
		{"nor null", `{"id":null,"amount":1}`, `the id "id" is empty`},
		{"characters are whole", `{"id":"\ud800","amount":1}`, "half a character"},
		{"both halves are there", `{"id":"\ud800\ud800","amount":1}`, "half a character"},
		{"in order", `{"id":"x\udc00\ud800","amount":1}`, "half a character"},
		{"in names too", `{"\udfff":1,"id":"a","amount":1}`, "half a character"},
		{"bytes are UTF-8", "{\"id\":\"\xff\",\"amount\":1}", "invalid UTF-8"},
		{"there is no mark", "\ufeff{\"id\":\"a\",\"amount\":1}", "not a JSON object"},
	} {
		_, err := collect(ledger.JSONL(strings.NewReader("{\"id\":\"a\",\"amount\":1}\n"+r.line+"\n"), c))
		var at *ledger.LineError
		if !errors.Is(err, ledger.ErrMalformed) || !errors.As(err, &at) || at.Line != 2 || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%s: %v, want one of line 2 that says %s", r.rule, err, r.says)
		}
	}
	if _, err := collect(ledger.JSONL(strings.NewReader("{}"), ledger.Columns{})); err == nil {
		t.Error("no member for the id")
	}
}

func TestJSONLRowsAreBounded(t *testing.T) {
	t.Parallel()
	c := ledger.Columns{ID: "id", MaxRow: 12}
	for _, end := range []string{"\n", "\r\n", ""} {
		rows, err := collect(ledger.JSONL(strings.NewReader("{\"id\":\"1234\"}"+end), c))
		if len(rows) != 0 || !errors.Is(err, ledger.ErrTooLarge) {
			t.Errorf("13 bytes: %v, %v", rows, err)
		}
		if rows, err = collect(ledger.JSONL(strings.NewReader("{\"id\":\"123\"}"+end), c)); len(rows) != 1 || err != nil {
			t.Errorf("12 bytes: %v, %v", rows, err)
		}
	}
	endless := &counted{r: io.MultiReader(strings.NewReader("{\"id\":\"a\"}\n"), forever(' '))}
	_, err := collect(ledger.JSONL(endless, ledger.Columns{ID: "id"}))
	var at *ledger.LineError
	if !errors.Is(err, ledger.ErrTooLarge) || !errors.As(err, &at) || at.Line != 2 || endless.n > 3<<20 {
		t.Errorf("after %d bytes: %v", endless.n, err)
	}
}
