package ledger_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

var columns = ledger.Columns{ID: "id", Time: "when", Fields: map[string]string{"amount": "Amount (EUR)", "key": "id"}}

// collect reads a source to its end.
func collect(s ledger.Source) (rows []ledger.Entry, err error) {
	for e, err := range s {
		if err != nil {
			return rows, err
		}
		rows = append(rows, e)
	}
	return rows, nil
}

func TestCSV(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	want := []ledger.Entry{
		{ID: "a", Line: 2, Time: noon, Fields: map[string]string{"amount": "1.00", "key": "a"}},
		{ID: "b,\n\"", Line: 4, Fields: map[string]string{"amount": "", "key": "b,\n\""}},
		{ID: "c", Line: 6, Time: noon.Add(-time.Hour), Fields: map[string]string{"amount": " 2", "key": "c"}},
	}
	for rule, file := range map[string]string{
		"columns are found by name":      "id,x,Amount (EUR),when\na,?,1.00,2026-03-01T12:00:00Z\n\n\"b,\n\"\"\",?,,\nc,?, 2,2026-03-01T12:00:00+01:00\n",
		"a byte order mark is skipped":   "\ufeff\"id\",when,Amount (EUR)\na,2026-03-01T12:00:00Z,1.00\n\n\"b,\n\"\"\",,\nc,2026-03-01T12:00:00+01:00, 2",
		"lines may end as on Windows":    "id,x,Amount (EUR),when\r\na,?,1.00,2026-03-01T12:00:00Z\r\n\r\n\"b,\r\n\"\"\",?,,\r\nc,?, 2,2026-03-01T12:00:00+01:00\r\n",
		"unused columns may be repeated": "x,x,id,Amount (EUR),when,x\n,,a,1.00,2026-03-01T12:00:00Z,\n\n,,\"b,\n\"\"\",,,\n,,c, 2,2026-03-01T11:00:00Z,\n",
	} {
		got, err := collect(ledger.CSV(iotest.OneByteReader(strings.NewReader(file)), columns))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", rule, got, err)
		}
	}
}

func TestCSVOptions(t *testing.T) {
	t.Parallel()
	got, err := collect(ledger.CSV(strings.NewReader("id;when\na;86400\n"),
		ledger.Columns{ID: "id", Time: "when", TimeLayout: ledger.Unix, Comma: ';'}))
	if want := []ledger.Entry{{ID: "a", Line: 2, Time: time.Unix(86400, 0).UTC()}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = collect(ledger.CSV(strings.NewReader("id,when\na,01.03.2026\n"),
		ledger.Columns{ID: "id", Time: "when", TimeLayout: "02.01.2006"}))
	if want := []ledger.Entry{{ID: "a", Line: 2, Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCSVIsStrict(t *testing.T) {
	t.Parallel()
	const header = "id,when,Amount (EUR)\n"
	for _, c := range []struct {
		rule, file string
		line       int
		says       string
	}{
		{"there is a header", "", 1, "no header"},
		{"a mark is none", "\ufeff", 1, "no header"},
		{"the columns are in it", "id,when,amount\n", 1, `no column "Amount (EUR)"`},
		{"letter by letter", "ID,when,Amount (EUR)\n", 1, `no column "id"`},
		{"once", "id,when,Amount (EUR),id\n", 1, `the column "id" twice`},
		{"a row is not shorter", header + "a,,1\nb,\n", 3, "wrong number of fields"},
		{"a row is not longer", header + "a,,1,2\n", 2, "wrong number of fields"},
		{"an id is not empty", header + "a,,1\n\n,,1\n", 4, `the id "id" is empty`},
		{"quotes are closed", header + "a,,\"1\n", 2, "quote"},
		{"quotes are at the ends", header + "a,,1\"2\n", 2, "quote"},
		{"times are times", header + "a,yesterday,1\n", 2, `the time "when": "yesterday" is not written as`},
	} {
		_, err := collect(ledger.CSV(strings.NewReader(c.file), columns))
		var at *ledger.LineError
		if !errors.Is(err, ledger.ErrMalformed) || !errors.As(err, &at) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want one that says %s", c.rule, err, c.says)
		} else if at.Line != c.line && c.says != "quote" {
			t.Errorf("%s: in line %d, want %d", c.rule, at.Line, c.line)
		}
	}
	_, err := collect(ledger.CSV(strings.NewReader("id\na\n"), ledger.Columns{}))
	if err == nil || !strings.Contains(err.Error(), "id") {
		t.Errorf("no column for the id: %v", err)
	}
	_, err = collect(ledger.CSV(strings.NewReader("id,when\na,12:00\n"), ledger.Columns{ID: "id", Time: "when", TimeLayout: ledger.Unix}))
	if !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("a time that is no number: %v", err)
	}
	if _, err = collect(ledger.CSV(strings.NewReader("id\na\n"), ledger.Columns{ID: "id", Comma: '"'})); err == nil {
		t.Error("a quote separates fields")
	}
}

func TestCSVRowsAreBounded(t *testing.T) {
	t.Parallel()
	c := ledger.Columns{ID: "id", MaxRow: 10}
	rows, err := collect(ledger.CSV(strings.NewReader("id\n123456789\n123456789\n1234567890\n"), c))
	if len(rows) != 2 || !errors.Is(err, ledger.ErrTooLarge) || !strings.Contains(err.Error(), "after the row in line 3") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if rows, err = collect(ledger.CSV(strings.NewReader("id\n"+strings.Repeat("123456789\n", 10_000)), c)); len(rows) != 10_000 || err != nil {
		t.Errorf("of many short rows %d are read, %v", len(rows), err)
	}
	// A quote that is never closed does not pull the file into memory.
	endless := &counted{r: io.MultiReader(strings.NewReader("id\n\""), forever('x'))}
	_, err = collect(ledger.CSV(endless, ledger.Columns{ID: "id"}))
	if !errors.Is(err, ledger.ErrTooLarge) || endless.n > 2<<20 {
		t.Errorf("after %d bytes: %v", endless.n, err)
	}
}

func TestReadersReturnWhatFails(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for name, s := range map[string]ledger.Source{
		"CSV":           ledger.CSV(io.MultiReader(strings.NewReader("id,n\na,1\nb,2"), iotest.ErrReader(lost)), ledger.Columns{ID: "id"}),
		"CSV, quoted":   ledger.CSV(io.MultiReader(strings.NewReader("id\na\n\"b"), iotest.ErrReader(lost)), ledger.Columns{ID: "id"}),
		"JSONL":         ledger.JSONL(io.MultiReader(strings.NewReader("{\"id\":\"a\"}\n{\"id\":\"b\""), iotest.ErrReader(lost)), ledger.Columns{ID: "id"}),
		"sorted CSV":    sorted(t.Context(), ledger.CSV(io.MultiReader(strings.NewReader("id\na\n"), iotest.ErrReader(lost)), ledger.Columns{ID: "id"}), nil),
		"CSV, no bytes": ledger.CSV(iotest.ErrReader(lost), ledger.Columns{ID: "id"}),
	} {
		rows, err := collect(s)
		if !errors.Is(err, lost) || len(rows) > 1 {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
	}
}

func TestReadersStopWhenAsked(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]ledger.Source{
		"CSV":    ledger.CSV(io.MultiReader(strings.NewReader("id\na\n"), iotest.ErrReader(io.ErrClosedPipe)), ledger.Columns{ID: "id"}),
		"JSONL":  ledger.JSONL(io.MultiReader(strings.NewReader("{\"id\":\"a\"}\n"), iotest.ErrReader(io.ErrClosedPipe)), ledger.Columns{ID: "id"}),
		"sorted": sorted(t.Context(), ledger.Of(row("b"), row("a")), nil),
	} {
		for e, err := range s {
			if err != nil || e.ID != "a" {
				t.Errorf("%s: %v, %v", name, e, err)
			}
			break
		}
	}
}

type forever byte

func (f forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(f)
	}
	return len(p), nil
}

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}
