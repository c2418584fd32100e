package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// comparison is how two ledgers are compared.
type comparison struct {
	id, time, layout string
	compare, amounts []string
	ours, theirs     []string
	comma            string
	since, until     moment
	presorted        bool
	format           *choice
}

func (p *program) reconcileLedger() *cobra.Command {
	var c comparison
	cmd := &cobra.Command{
		Use:   "ledger OURS THEIRS",
		Short: "Compare our list of payments with the provider's",
		Long: `Compares two lists of the same payments and prints what only one side has, what
differs, and what is there twice. A charge that only the provider has, or has twice,
is one that the write path lost. The exit code is 1 if anything differs.

Lists are CSV files with a header, or files with a JSON object in each line (.jsonl,
.ndjson, .json); - is CSV from the standard input. They may have any length and any
order. A row that cannot be read ends the comparison: less than everything is never
clean.

Both sides need not call things the same: --theirs amount=net says that what is
compared as amount is in their column net. A payment of 23:59 may be booked on the next
day on the other side: let the lists reach beyond the period, and name it with --since
and --until; what only one side has outside of it is pending, and not wrong.`,
		Example: `  retrysafe reconcile ledger ours.csv theirs.csv --compare amount,currency
  # our id is called key, theirs reference, and their amount is called net
  retrysafe reconcile ledger ours.csv theirs.jsonl --compare amount --ours id=key --theirs id=reference,amount=net
  # one day, with lists that reach an hour beyond it; for a script
  retrysafe reconcile ledger ours.csv theirs.csv --time booked_at --since 2026-03-01 --until 2026-03-02 --format json`,
		Args: exactly("OURS", "THEIRS"),
	}
	flags := cmd.Flags()
	flags.StringVar(&c.id, "id", "id", "column of the payment's id")
	flags.StringVar(&c.time, "time", "", "column of the time, for --since and --until")
	flags.StringVar(&c.layout, "time-layout", "", `how times are written, as Go has it, or "unix" (default RFC 3339)`)
	flags.StringSliceVar(&c.compare, "compare", nil, "columns that both sides have to agree on")
	flags.StringSliceVar(&c.amounts, "amounts", []string{"amount"}, "those of them that are decimals: 1.0 is 1.00")
	flags.StringSliceVar(&c.ours, "ours", nil, "what a column is called in our list: `NAME=COLUMN`")
	flags.StringSliceVar(&c.theirs, "theirs", nil, "what a column is called in their list: `NAME=COLUMN`")
	flags.StringVar(&c.comma, "comma", ",", "what separates the fields of CSV files")
	flags.Var(&c.since, "since", "beginning of the period")
	flags.Var(&c.until, "until", "end of the period")
	flags.BoolVar(&c.presorted, "presorted", false, "both lists are in order of their ids, byte by byte")
	c.format = formats(cmd, "text", "json")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error { return p.compare(cmd.Context(), &c, args[0], args[1]) })
	return cmd
}

func (p *program) compare(ctx context.Context, c *comparison, ours, theirs string) error {
	if ours == "-" && theirs == "-" {
		return misused("only one of the lists can be the standard input")
	}
	g := p.progress()
	rows := int64(0)
	var sources [2]ledger.Source
	for i, side := range []struct {
		path    string
		renamed []string
	}{{ours, c.ours}, {theirs, c.theirs}} {
		columns, err := c.columns(side.renamed)
		if err != nil {
			return err
		}
		f, err := p.openList(side.path)
		if err != nil {
			return err
		}
		defer f.Close()
		read := ledger.CSV
		switch strings.ToLower(filepath.Ext(side.path)) {
		case ".jsonl", ".ndjson", ".json":
			read = ledger.JSONL
		}
		sources[i] = counted(in(side.path, read(f, columns)), func() { rows++; g.show(rows, "rows read") })
	}
	report := ledger.TextReport(p.stdout)
	if c.format.value == "json" {
		report = ledger.JSONLReport(p.stdout)
	}
	summary, err := ledger.Compare(ctx, sources[0], sources[1], ended{report, g}, &ledger.Options{Amounts: c.amounts, Since: c.since.Time, Until: c.until.Time, Presorted: c.presorted})
	g.end()
	switch {
	case errors.Is(err, ledger.ErrMalformed), errors.Is(err, ledger.ErrOrder), errors.Is(err, ledger.ErrTooLarge):
		return misused("the lists cannot be compared: %v", err)
	case err != nil:
		return failed(exitFailed, "the lists were not compared: %v", err)
	case !summary.Clean():
		return quietly(exitNo)
	}
	return nil
}

// columns says where the parts of a row are in one of the lists.
func (c *comparison) columns(renamed []string) (ledger.Columns, error) {
	comma, size := utf8.DecodeRuneInString(c.comma)
	if c.comma == `\t` {
		comma, size = '\t', len(c.comma)
	}
	if size != len(c.comma) || c.comma == "" {
		return ledger.Columns{}, misused("--comma %q is not one character", c.comma)
	}
	at := map[string]string{"id": c.id, "time": c.time}
	for _, name := range c.compare {
		if name == "id" || name == "time" {
			return ledger.Columns{}, misused("--compare %s: that is the name of what is not compared", name).hinted("call it otherwise: --compare x --ours x=%s --theirs x=%s", name, name)
		}
		at[name] = name
	}
	for _, r := range renamed {
		name, column, ok := strings.Cut(r, "=")
		if _, known := at[name]; !ok || !known || column == "" {
			return ledger.Columns{}, misused("%q does not say what a column is called", r).hinted("it is written as NAME=COLUMN, and NAME is id, time or one of --compare")
		}
		at[name] = column
	}
	columns := ledger.Columns{ID: at["id"], Time: at["time"], TimeLayout: c.layout, Comma: comma, Fields: map[string]string{}}
	for _, name := range c.compare {
		columns.Fields[name] = at[name]
	}
	return columns, nil
}

func (p *program) openList(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(p.stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, misused("%v", err)
	}
	return f, nil
}

// in names the file that an error of a source is about.
func in(path string, s ledger.Source) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		for e, err := range s {
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// counted tells of each row.
func counted(s ledger.Source, tell func()) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		for e, err := range s {
			tell()
			if !yield(e, err) {
				return
			}
		}
	}
}

// ended takes the progress away before a report writes.
type ended struct {
	ledger.Report
	progress *progress
}

func (e ended) Add(d ledger.Difference) error {
	e.progress.end()
	return e.Report.Add(d)
}

func (e ended) End(s ledger.Summary, err error) error {
	e.progress.end()
	return e.Report.End(s, err)
}
