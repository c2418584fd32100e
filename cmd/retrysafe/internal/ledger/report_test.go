package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

func report(t *testing.T, r ledger.Report, ours, theirs ledger.Source) {
	t.Helper()
	if _, err := ledger.Compare(t.Context(), ours, theirs, r, nil); err != nil {
		t.Fatal(err)
	}
}

func TestTextReport(t *testing.T) {
	t.Parallel()
	ours := ledger.Of(ledger.Entry{ID: "pay_1", Line: 2, Fields: map[string]string{"amount": "12.00", "currency": "EUR"}},
		ledger.Entry{ID: "pay_2"}, ledger.Entry{ID: "pay_2", Time: time.Unix(60, 5), Fields: map[string]string{"note": "two words"}})
	theirs := ledger.Of(ledger.Entry{ID: "pay_1", Line: 9, Fields: map[string]string{"amount": "-12.00", "currency": "EUR"}},
		ledger.Entry{ID: "pay_10", Line: 10, Fields: map[string]string{"amount": ""}})
	var b strings.Builder
	report(t, ledger.TextReport(&b), ours, theirs)
	const want = `KIND            ID      OURS                                   THEIRS
different       pay_1   line 2 amount=12.00                    line 9 amount=-12.00
only_theirs     pay_10  -                                      line 10 amount=""
only_ours       pay_2   (a row)                                -
duplicate_ours  pay_2   1970-01-01T00:01:00Z note="two words"  -
rows: 3 ours, 2 theirs; 0 the same, 1 only ours, 1 only theirs, 1 different, 1 duplicate ours
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestReportsOfAgreementAreShort(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	report(t, ledger.TextReport(&b), ledger.Of(row("a")), ledger.Of(row("a")))
	if got, want := b.String(), "rows: 1 ours, 1 theirs; 1 the same\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.Reset()
	report(t, ledger.JSONLReport(&b), ledger.Of(row("a")), ledger.Of(row("a")))
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, `{"kind":"summary","complete":true,"ours":1,`) {
		t.Error(got)
	}
}

// A page is written when it is full, so the report's memory is bounded; later pages are aligned like the first.
func TestTextReportWritesPages(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	r := ledger.TextReport(&b)
	for i := range 10_000 {
		if err := r.Add(ledger.Difference{Kind: ledger.KindOnlyOurs, ID: fmt.Sprint(i), Ours: row(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(b.String(), "\n"); n < 9000 {
		t.Errorf("%d lines were written before the end", n)
	}
	before := b.Len()
	wide := strings.Repeat("x", 300_000)
	if err := r.Add(ledger.Difference{Kind: ledger.KindOnlyOurs, ID: wide, Ours: row(wide)}); err != nil || b.Len() < before+300_000 {
		t.Errorf("a wide row was held back: %v", err)
	}
	if err := r.Add(ledger.Difference{Kind: ledger.KindOnlyOurs, ID: "z", Ours: row("z")}); err != nil {
		t.Fatal(err)
	}
	if err := r.End(ledger.Summary{Complete: true}, nil); err != nil || !strings.Contains(b.String(), "only_ours  z     (a row)") {
		t.Errorf("a wide row spoils the alignment of others: %v", err)
	}
}

// failing is a report that takes only so many differences.
type failing struct {
	ledger.Report
	left int
	err  error
}

func (f *failing) Add(d ledger.Difference) error {
	if f.left--; f.left < 0 {
		return f.err
	}
	return f.Report.Add(d)
}

func TestReportsSayWhenTheyAreNotWhole(t *testing.T) {
	t.Parallel()
	stopped := errors.New("read theirs: line 3: \x1b[2J \"x\"")
	var b strings.Builder
	r := ledger.TextReport(&b)
	_, _ = ledger.Compare(t.Context(), ledger.Of(row("a")), broken(stopped, row("b")), r, nil)
	if got := b.String(); !strings.HasSuffix(got, "; INCOMPLETE\nstopped: read theirs: read theirs: line 3: \\x1b[2J \"x\"\n") {
		t.Errorf("%q", got)
	}
	b.Reset()
	_, _ = ledger.Compare(t.Context(), ledger.Of(row("a"), row("b")), ledger.Of(), &failing{Report: ledger.TextReport(&b), left: 1, err: stopped}, nil)
	if got := b.String(); !strings.Contains(got, "only_ours  a") || !strings.HasSuffix(got, "; INCOMPLETE\nstopped: report only_ours \"b\": read theirs: line 3: \\x1b[2J \"x\"\n") {
		t.Errorf("%q", got)
	}
	b.Reset()
	_, _ = ledger.Compare(t.Context(), ledger.Of(row("a")), broken(stopped, row("b")), ledger.JSONLReport(&b), nil)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	var last struct {
		Kind, Error string
		Complete    bool
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Kind != "summary" || last.Complete || !strings.Contains(last.Error, "line 3") {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestJSONLReport(t *testing.T) {
	t.Parallel()
	ours := ledger.Of(ledger.Entry{ID: "a", Line: 2, Time: time.Unix(1, 5e8), Fields: map[string]string{"amount": "1.00"}}, ledger.Entry{ID: "c", Record: "s c", Unknown: "in_progress"})
	theirs := ledger.Of(ledger.Entry{ID: "a", Fields: map[string]string{"amount": "2"}}, ledger.Entry{ID: "b"})
	var b strings.Builder
	report(t, ledger.JSONLReport(&b), ours, theirs)
	const want = `{"kind":"different","id":"a","fields":["amount"],"ours":{"line":2,"time":"1970-01-01T00:00:01.5Z","fields":{"amount":"1.00"}},"theirs":{"fields":{"amount":"2"}}}
{"kind":"only_theirs","id":"b","theirs":{}}
{"kind":"unknown","id":"c","ours":{"record":"s c","state":"in_progress"}}
{"kind":"summary","complete":true,"ours":2,"theirs":2,"same":0,"different":1,"only_ours":0,"only_theirs":1,"duplicate_ours":0,"duplicate_theirs":0,"pending_ours":0,"pending_theirs":0,"unknown":1,"unknown_confirmed":0,"unidentified":0}
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// hostile is what an attacker may have put into a payment's reference.
var hostile = []string{
	"\x1b[2J\x1b]0;title\x07", "\u009b31m", "a\nonly_theirs pay_9", "a\rb", "a\tb", "\x00", "\x7f", "\xff\xfe", "\u202e123", "\u200b", "\u2028", "\U000e0001", "\ufffd",
	"=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "'=1", "＝1", "\t=1", "a,=1", `a";=1`, "`id`", "amount=1", `\x1b`, "", " ", "-", "-12.00", "é", "日本",
}

func TestW81_ReportsCarryNeitherControlCharactersNorFormulas(t *testing.T) {
	t.Parallel()
	words := map[string]string{}
	for _, text := range hostile {
		e := ledger.Entry{ID: text, Fields: map[string]string{text: text}}
		if text == "" {
			e.ID = "id"
		}
		d := ledger.Difference{Kind: ledger.KindOnlyTheirs, ID: e.ID, Theirs: e}
		for name, r := range map[string]func(b *bytes.Buffer) ledger.Report{
			"text":  func(b *bytes.Buffer) ledger.Report { return ledger.TextReport(b) },
			"JSONL": func(b *bytes.Buffer) ledger.Report { return ledger.JSONLReport(b) },
		} {
			var b bytes.Buffer
			report := r(&b)
			if err := errors.Join(report.Add(d), report.End(ledger.Summary{Complete: true}, nil)); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			for _, line := range lines {
				if bad := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); bad >= 0 || !utf8.ValidString(line) {
					t.Errorf("%s report of %q has a character that is not printable: %q", name, text, line)
				}
			}
			if name == "JSONL" {
				var got struct {
					ID     string
					Theirs struct{ Fields map[string]string }
				}
				want := strings.ToValidUTF8(e.ID, "\ufffd")
				if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(lines) != 2 || got.ID != want && utf8.ValidString(e.ID) {
					t.Errorf("JSONL report of %q reads %q, %v", text, got.ID, err)
				}
				continue
			}
			if len(lines) != 3 {
				t.Errorf("text report of %q has %d lines", text, len(lines))
			}
			cells := strings.SplitN(lines[1], "  ", 2)[1]
			word := strings.TrimLeft(cells[:strings.LastIndex(cells, " - ")+1], " ")
			word = strings.TrimRight(word, " ")
			// A spreadsheet takes the quotes off.
			if cell := strings.TrimPrefix(word, `"`); text != "-12.00" && strings.ContainsAny(cell[:1], "=+-@") {
				t.Errorf("text report of %q has the formula %s", text, word)
			}
			if other, taken := words[word]; taken {
				t.Errorf("%q and %q are both shown as %s", text, other, word)
			}
			words[word] = text
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func page(w io.Writer) ledger.Report { return ledger.HTMLReport(w, ledger.Heading{Title: "t"}) }

func TestReportsReturnWhatFails(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(io.Writer) ledger.Report{"text": ledger.TextReport, "JSONL": ledger.JSONLReport, "HTML": page} {
		for _, theirs := range []ledger.Source{ledger.Of(), ledger.Of(row("a"))} { // with a difference and without
			sum, err := ledger.Compare(t.Context(), ledger.Of(row("a")), theirs, of(fullDisk{}), nil)
			if err == nil || !strings.Contains(err.Error(), "disk full") || sum.Complete {
				t.Errorf("%s: %+v, %v", name, sum, err)
			}
		}
	}
	for name, r := range map[string]ledger.Report{"text": ledger.TextReport(fullDisk{}), "JSONL": ledger.JSONLReport(fullDisk{})} {
		many := func(yield func(ledger.Entry, error) bool) {
			for i := range 5000 {
				if !yield(row(fmt.Sprintf("%06d", i)), nil) {
					return
				}
			}
		}
		if sum, err := ledger.Compare(t.Context(), many, ledger.Of(), r, nil); err == nil || sum.Ours == 5000 {
			t.Errorf("%s: goes on after %v: %+v", name, err, sum)
		}
	}
}
