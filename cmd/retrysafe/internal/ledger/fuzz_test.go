package ledger_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// sane holds what is true of the rows of any file.
func sane(t *testing.T, rows []ledger.Entry, err error) {
	t.Helper()
	line := 0
	for _, e := range rows {
		if e.ID == "" || e.Line <= line || len(e.Fields) != 1 {
			t.Errorf("row %+v after line %d", e, line)
		}
		line = e.Line
	}
	if err != nil && !errors.Is(err, ledger.ErrMalformed) && !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("a file in memory cannot fail with %v", err)
	}
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"id,n\na,1\nb,2\n", "\ufeffn,id\r\n1,\"a\n\"\"b\"\r\n", "id,n\n\na,\n", "id\na\n", "id,n\na,\"1", "id,n,n\n", "id,n\n,1\n"} {
		hammer.Add(f, s)
	}
	c := ledger.Columns{ID: "id", Fields: map[string]string{"n": "n"}, MaxRow: 1 << 10}
	hammer.Fuzz(f, func(t *testing.T, file string) {
		got, err := collect(ledger.CSV(strings.NewReader(file), c))
		sane(t, got, err)
		if err != nil {
			return
		}
		// What is accepted is what the standard reader sees.
		records, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(file, "\ufeff"))).ReadAll()
		if err != nil || len(records) != len(got)+1 {
			t.Fatalf("%d rows of %d records, %v", len(got), len(records), err)
		}
		for i, record := range records[1:] {
			for j, name := range records[0] {
				if name == "id" && record[j] != got[i].ID || name == "n" && record[j] != got[i].Fields["n"] {
					t.Errorf("%q was read as %+v", record, got[i])
				}
			}
		}
	})
}

func FuzzJSONL(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","n":1}`, "{\"n\":1.50,\"id\":\"a\"}\r\n\n{\"id\":2,\"n\":null}", `{"id":"\ud83d\ude00\\","n":"\u0000","x":[{"id":"}"}]}`,
		`{"id":"a","n":1,"n":2}`, `{"id":"\ud800","n":1}`, `{"id":"a","n":{}}`, `{}`, `[]`, `{"id":"a" , "n" : true }`, "{\"id\":\"\xff\",\"n\":1}",
	} {
		hammer.Add(f, s)
	}
	c := ledger.Columns{ID: "id", Fields: map[string]string{"n": "n"}, MaxRow: 1 << 10}
	hammer.Fuzz(f, func(t *testing.T, file string) {
		got, err := collect(ledger.JSONL(strings.NewReader(file), c))
		sane(t, got, err)
		if err != nil {
			return
		}
		// What is accepted is what the standard decoder sees.
		rest := got
		for line := range strings.Lines(file) {
			if strings.Trim(line, " \t\r\n") == "" {
				continue
			}
			d := json.NewDecoder(strings.NewReader(line))
			d.UseNumber()
			var object map[string]any
			if err := d.Decode(&object); err != nil || len(rest) == 0 {
				t.Fatalf("%q was accepted: %v", line, err)
			}
			if id, n := plain(object["id"]), plain(object["n"]); id != rest[0].ID || n != rest[0].Fields["n"] {
				t.Errorf("%q was read as %+v", line, rest[0])
			}
			rest = rest[1:]
		}
	})
}

// plain is a decoded value as a text.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return map[bool]string{true: "true", false: "false"}[v]
	}
	return ""
}

// hostileTexts are texts that a database, a terminal or a spreadsheet could take for more.
var hostileTexts = []string{"pay_1", "1.00", "\x1b[2J", "=1", "\xff", "a\x00b", "'", "\"", "line\r\nline", "\u202e", strings.Repeat("x", 5000)}

// Whatever is in a row, it comes back from the database unchanged.
func TestRowsComeBackUnchanged(t *testing.T) {
	t.Parallel()
	for i, id := range hostileTexts {
		for j, text := range hostileTexts {
			e := ledger.Entry{ID: id, Line: i - j, Fields: map[string]string{text: id + text}}
			got, err := collect(sorted(t.Context(), ledger.Of(e), &ledger.Options{Memory: 1}))
			if err != nil || !reflect.DeepEqual(got, []ledger.Entry{e}) {
				t.Errorf("%+v came back as %+v, %v", e, got, err)
			}
		}
	}
}

// Whatever is in a row, it has one line in each report. That it comes back from its encoding is FuzzRowEncoding.
func FuzzRow(f *testing.F) {
	hammer.Add(f, "pay_1", "amount", "1.00", 3)
	hammer.Add(f, "\x1b[2J", "=1", "\xff", -1)
	hammer.Fuzz(f, func(t *testing.T, id, name, text string, line int) {
		if id == "" {
			return
		}
		e := ledger.Entry{ID: id, Line: line, Fields: map[string]string{name: text}}
		for lines, r := range map[int]func(*bytes.Buffer) ledger.Report{
			3: func(b *bytes.Buffer) ledger.Report { return ledger.TextReport(b) },
			2: func(b *bytes.Buffer) ledger.Report { return ledger.JSONLReport(b) },
		} {
			var b bytes.Buffer
			report := r(&b)
			err := report.Add(ledger.Difference{Kind: ledger.KindOnlyTheirs, ID: id, Theirs: e})
			if err = errors.Join(err, report.End(ledger.Summary{Theirs: 1, OnlyTheirs: 1, Complete: true}, nil)); err != nil {
				t.Fatal(err)
			}
			if got := bytes.Count(b.Bytes(), []byte("\n")); got != lines || bytes.ContainsAny(b.Bytes(), "\x00\x07\x08\x1b\r\x7f") {
				t.Errorf("%q", b.String())
			}
		}
	})
}
