package ledger

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// TextReport returns a report that writes a table for people: a line for each difference, and the summary as the last.
// Of rows that differ it shows what differs. A comparison that failed ends in a line that says so.
//
// Texts from the lists are harmless in a terminal and in a spreadsheet that the table is pasted into, and cannot imitate
// another cell or row: texts with other than plain characters are quoted, and those that would be formulas begin with an
// apostrophe. The report is not safe for concurrent use.
func TextReport(w io.Writer) Report {
	return &textReport{w: w, rows: [][textColumns]string{{"KIND", "ID", "OURS", "THEIRS"}}}
}

const textColumns = 4

// textReport collects a page of rows before it writes them, to align them. Columns never become narrower.
type textReport struct {
	w      io.Writer
	rows   [][textColumns]string
	bytes  int // in rows
	lines  bytes.Buffer
	widths [textColumns]int
	some   bool
}

const (
	pageRows  = 500
	pageBytes = 256 << 10
	widest    = 64 // a wider cell is not aligned, and does not widen its column
)

func (t *textReport) Add(d Difference) error {
	row := [textColumns]string{d.Kind.String(), harmlessWord(d.ID), cell(&d.Ours, &d), cell(&d.Theirs, &d)}
	for _, c := range row {
		t.bytes += len(c)
	}
	t.rows, t.some = append(t.rows, row), true
	if len(t.rows) < pageRows && t.bytes < pageBytes {
		return nil
	}
	return t.flush()
}

func (t *textReport) End(s Summary, err error) error {
	if !t.some {
		t.rows = nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	end := s.String() + "\n"
	if err != nil {
		end += "stopped: " + printable.Text(err.Error()) + "\n"
	}
	_, err = io.WriteString(t.w, end)
	return err
}

func (t *textReport) flush() error {
	for _, row := range t.rows {
		for i, c := range row {
			if n := utf8.RuneCountInString(c); n <= widest {
				t.widths[i] = max(t.widths[i], n)
			}
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(c)
			if pad := t.widths[i] + 2 - utf8.RuneCountInString(c); i < textColumns-1 {
				line.WriteString(strings.Repeat(" ", max(pad, 2)))
			}
		}
		t.lines.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	t.rows, t.bytes = t.rows[:0], 0
	_, err := t.lines.WriteTo(t.w)
	return err
}

// cell shows a row of one side: the fields that differ, or all fields if it is not compared with a row of the other side.
func cell(e *Entry, d *Difference) string {
	if e.ID == "" {
		return "-"
	}
	var parts []string
	if e.Line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", e.Line))
	}
	names := d.Fields
	if d.Kind != KindDifferent {
		names = slices.Sorted(maps.Keys(e.Fields))
		if !e.Time.IsZero() {
			parts = append(parts, e.Time.UTC().Format("2006-01-02T15:04:05Z"))
		}
	}
	if e.Unknown != "" {
		parts = append(parts, "state="+harmlessWord(e.Unknown))
	}
	for _, name := range names {
		parts = append(parts, harmlessWord(name)+"="+harmlessWord(e.Fields[name]))
	}
	if e.Record != "" {
		parts = append(parts, "record="+harmlessWord(e.Record))
	}
	if parts == nil {
		return "(a row)"
	}
	return strings.Join(parts, " ")
}

// special are the characters that could end a word, or a cell.
const special = " \"\\=`,;|"

// harmlessWord returns s as one word of the report that neither a terminal nor a spreadsheet takes for more. Different texts
// have different words.
func harmlessWord(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !printable.Is(r) || strings.ContainsRune(special, r) })
	if printable.IsFormula(s) || strings.HasPrefix(s, "'") { // an apostrophe makes a formula a text, and is not part of it
		if _, number := parseDecimal(s); !number {
			s = "'" + s
		}
	}
	if plain {
		return s
	}
	return printable.Quote(s)
}
