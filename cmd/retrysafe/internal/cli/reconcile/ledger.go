package reconcile

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

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// A comparison is what the flags of reconcile ledger ask for.
type comparison struct {
	id, time, layout string
	compare, amounts []string
	ours, theirs     []string
	comma            string
	since, until     command.Time
	presorted        bool
	format           *command.Choice
}

func ledgerCommand(env *command.Env) *cobra.Command {
	var c comparison
	cmd := &cobra.Command{
		Use:   "ledger OURS THEIRS",
		Short: "Compare our list of payments with the provider's",
		Long: `Compares two lists of the same payments and prints the payments that only one side
has, that differ, or that occur twice. A charge that only the provider has, or has twice,
is one that the write path lost. The exit code is 1 if anything differs.

Lists are CSV files with a header, or files with a JSON object in each line (.jsonl,
.ndjson, .json); - is CSV from the standard input. They may have any length and any
order. A row that cannot be read ends the comparison: an incomplete comparison is never
clean.

Columns may have different names on both sides: --theirs amount=net compares their
column net as amount. A payment of 23:59 may be booked on the next day on the other side:
let the lists reach beyond the period, and give the period with --since and --until. A
payment outside of it that only one side has is pending, and not an error.`,
		Example: `  retrysafe reconcile ledger ours.csv theirs.csv --compare amount,currency
  # our id is called key, theirs reference, and their amount is called net
  retrysafe reconcile ledger ours.csv theirs.jsonl --compare amount --ours id=key --theirs id=reference,amount=net
  # one day, with lists that reach an hour beyond it; for a script
  retrysafe reconcile ledger ours.csv theirs.csv --time booked_at --since 2026-03-01 --until 2026-03-02 --format json`,
		Args: command.Args("OURS", "THEIRS"),
	}
	flags := cmd.Flags()
	flags.StringVar(&c.id, "id", "id", "column of the payment's id")
	flags.StringVar(&c.time, "time", "", "column of the time, for --since and --until")
	flags.StringVar(&c.layout, "time-layout", "", `layout of times, in the notation of Go, or "unix" (default RFC 3339)`)
	flags.StringSliceVar(&c.compare, "compare", nil, "columns that both sides have to agree on")
	flags.StringSliceVar(&c.amounts, "amounts", []string{"amount"}, "those of them that are decimals: 1.0 equals 1.00")
	flags.StringSliceVar(&c.ours, "ours", nil, "name of a column in our list: `NAME=COLUMN`")
	flags.StringSliceVar(&c.theirs, "theirs", nil, "name of a column in their list: `NAME=COLUMN`")
	flags.StringVar(&c.comma, "comma", ",", "separator of fields in CSV files")
	flags.Var(&c.since, "since", "beginning of the period")
	flags.Var(&c.until, "until", "end of the period")
	flags.BoolVar(&c.presorted, "presorted", false, "fail unless both lists are sorted by id, byte by byte")
	c.format = command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), env, args[0], args[1]) })
	return cmd
}

func (c *comparison) run(ctx context.Context, env *command.Env, ours, theirs string) error {
	if ours == "-" && theirs == "-" {
		return exit.Usagef("only one of the lists can be the standard input")
	}
	g := env.Progress()
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
		f, err := openList(env, side.path)
		if err != nil {
			return err
		}
		defer f.Close()
		read := ledger.CSV
		switch strings.ToLower(filepath.Ext(side.path)) {
		case ".jsonl", ".ndjson", ".json":
			read = ledger.JSONL
		}
		sources[i] = counted(in(side.path, read(f, columns)), func() { rows++; g.Show(rows, "rows read") })
	}
	report := ledger.TextReport(env.Out)
	if c.format.Is("json") {
		report = ledger.JSONLReport(env.Out)
	}
	summary, err := ledger.Compare(ctx, sources[0], sources[1], progressReport{report, g}, &ledger.Options{Amounts: c.amounts, Since: c.since.Time, Until: c.until.Time, Presorted: c.presorted})
	g.End()
	switch {
	case errors.Is(err, ledger.ErrMalformed), errors.Is(err, ledger.ErrOrder), errors.Is(err, ledger.ErrTooLarge):
		return exit.Usagef("the lists cannot be compared: %v", err)
	case err != nil:
		return exit.Errorf(exit.Failed, "the lists were not compared: %v", err)
	case !summary.Clean():
		return exit.Silent(exit.No)
	}
	return nil
}

// columns returns the columns of one of the lists.
func (c *comparison) columns(renamed []string) (ledger.Columns, error) {
	comma, size := utf8.DecodeRuneInString(c.comma)
	if c.comma == `\t` {
		comma, size = '\t', len(c.comma)
	}
	if size != len(c.comma) || c.comma == "" {
		return ledger.Columns{}, exit.Usagef("--comma %q is not one character", c.comma)
	}
	at := map[string]string{"id": c.id, "time": c.time}
	for _, name := range c.compare {
		if name == "id" || name == "time" {
			return ledger.Columns{}, exit.Usagef("--compare %s: %s is not compared under this name", name, name).Hintf("use another: --compare x --ours x=%s --theirs x=%s", name, name)
		}
		at[name] = name
	}
	for _, r := range renamed {
		name, column, ok := strings.Cut(r, "=")
		if _, known := at[name]; !ok || !known || column == "" {
			return ledger.Columns{}, exit.Usagef("%q does not name a column", r).Hintf("it is written as NAME=COLUMN, and NAME is id, time or one of --compare")
		}
		at[name] = column
	}
	columns := ledger.Columns{ID: at["id"], Time: at["time"], TimeLayout: c.layout, Comma: comma, Fields: map[string]string{}}
	for _, name := range c.compare {
		columns.Fields[name] = at[name]
	}
	return columns, nil
}

func openList(env *command.Env, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(env.In), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	return f, nil
}

// in adds the name of the file to errors of a source.
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

// counted calls count for each row.
func counted(s ledger.Source, count func()) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		for e, err := range s {
			count()
			if !yield(e, err) {
				return
			}
		}
	}
}

// A progressReport removes the progress before the report writes.
type progressReport struct {
	ledger.Report
	progress *terminal.Progress
}

func (r progressReport) Add(d ledger.Difference) error {
	r.progress.End()
	return r.Report.Add(d)
}

func (r progressReport) End(s ledger.Summary, err error) error {
	r.progress.End()
	return r.Report.End(s, err)
}
