package terminal

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// A Table is a list in columns: aligned for people, or as CSV for spreadsheets.
type Table struct {
	w       io.Writer
	csv     bool
	columns []string
	rows    [][]string
	begun   bool
}

// NewTable returns an empty table with these columns.
func NewTable(w io.Writer, csv bool, columns ...string) *Table {
	return &Table{w: w, csv: csv, columns: columns}
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Flush writes the rows that were added since the last Flush. The first rows are
// written with the header. Columns are aligned within one Flush.
func (t *Table) Flush() error {
	rows := t.rows
	if !t.begun && len(rows) > 0 {
		rows = append([][]string{t.columns}, rows...)
		t.begun = true
	}
	t.rows = nil
	if t.csv {
		return writeCSV(t.w, rows)
	}
	tw := columns(t.w)
	for _, cells := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return tw.Flush()
}

// writeCSV writes rows without formulas in them.
func writeCSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	for _, cells := range rows {
		safe := make([]string, len(cells))
		for i, cell := range cells {
			safe[i] = printable.Cell(cell)
		}
		if err := out.Write(safe); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// Details are the properties of one thing, one in each line: its name and its value.
type Details struct{ tw *tabwriter.Writer }

// NewDetails returns details that are written to w.
func NewDetails(w io.Writer) *Details { return &Details{columns(w)} }

// Add adds a property. An empty name continues the one before.
func (d *Details) Add(name, format string, args ...any) {
	fmt.Fprintf(d.tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// Flush writes all properties, aligned.
func (d *Details) Flush() error { return d.tw.Flush() }

func columns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }
