package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A table is a list for people, or for spreadsheets. Its cells are visible already.
type table struct {
	w       io.Writer
	csv     bool
	columns []string
	rows    [][]string
	begun   bool
}

func newTable(w io.Writer, format *choice, columns ...string) *table {
	return &table{w: w, csv: format.value == "csv", columns: columns}
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// flush writes the rows so far. The header comes once.
func (t *table) flush() error {
	rows := t.rows
	if !t.begun && len(rows) > 0 {
		rows = append([][]string{t.columns}, rows...)
		t.begun = true
	}
	t.rows = nil
	if t.csv {
		return writeCSV(t.w, rows)
	}
	tw := tabwriter.NewWriter(t.w, 0, 8, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return tw.Flush()
}

// writeCSV writes rows such that no spreadsheet takes a cell for a formula.
func writeCSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	for _, cells := range rows {
		guarded := make([]string, len(cells))
		for i, cell := range cells {
			if guarded[i] = cell; cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) && cell != "-" {
				guarded[i] = "'" + cell
			}
		}
		if err := out.Write(guarded); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
