package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// A comparison is what the flags of reconcile ledger ask for.
type comparison struct {
	target stores.Flags

	id, time, layout string
	compare, amounts []string
	ours, theirs     []string
	comma            string
	since, until     command.Time
	presorted        bool
	format           *command.Choice

	operations      []string
	ledger          string
	day, zone       string
	tolerance       time.Duration
	tokenFile       string
	plainHTTP       bool
	maxSize         int64
	namespace, call string
}

// ledgerTokenVariable has the bearer token for the URL of the other side's list.
const ledgerTokenVariable = "RETRYSAFE_LEDGER_TOKEN"

func ledgerCommand(env *command.Env) *cobra.Command {
	var c comparison
	cmd := &cobra.Command{
		Use:   "ledger [[OURS] THEIRS]",
		Short: "Compare our list of payments with the provider's",
		Long: `Compares two lists of the same payments and prints the payments that only one side
has, that differ, or that occur twice. A charge that only the provider has, or has twice,
is one that the write path lost. The exit code is 1 if anything differs.

With one argument our list is read from the store: the answers of the operations that
--operation names, and the outcomes that are unknown, which are listed as such. THEIRS is
a file, a directory, whose newest whole file is read, or a URL ($` + ledgerTokenVariable + ` or
--token-file has a bearer token for it). --ours says what is read of a record, as
NAME=VALUE: key, downstream_key, provider_ref, scope, status, a JSON pointer into the
answer such as /amount, request:/pointer or header:NAME. The id is the key and a field
the member of the answer with its name unless it says otherwise.

Without arguments --ledger names a ledger of the gateway's configuration. A gateway
compares it by itself if it has a time for that (docs/recovery.md); this command repeats
it, or runs it from cron.

With two arguments both lists are files. Lists are CSV files with a header, or files with
a JSON object in each line (.jsonl, .ndjson, .json); - is CSV from the standard input.
They may have any length and any order. A row that cannot be read ends the comparison: an
incomplete comparison is never clean.

Columns may have different names on both sides: --theirs amount=net compares their
column net as amount. A payment of 23:59 may be booked on the next day on the other side:
let the lists reach beyond the period, and give the period with --day, or --since and
--until. A payment outside of it that only one side has is pending, and not an error.

` + stores.Help,
		Example: `  retrysafe reconcile ledger ours.csv theirs.csv --compare amount,currency
  # our id is called key, theirs reference, and their amount is called net
  retrysafe reconcile ledger ours.csv theirs.jsonl --compare amount --ours id=key --theirs id=reference,amount=net
  # one day, with lists that reach an hour beyond it; for a script
  retrysafe reconcile ledger ours.csv theirs.csv --time booked_at --since 2026-03-01 --until 2026-03-02 --format json
  # our side from the store, theirs from a directory where the provider puts its lists
  retrysafe reconcile ledger /var/lib/stripe --store sqlite:retrysafe.db --operation 'POST /payments' --compare amount --ours id=provider_ref --day 2026-03-01
  # yesterday, as the gateway's configuration says, as a page
  retrysafe reconcile ledger --config gateway.yaml --ledger stripe --format html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 {
				return fmt.Errorf("%q is one argument too many", args[2])
			}
			return nil
		},
	}
	flags := cmd.Flags()
	c.target.Add(flags)
	flags.StringVar(&c.id, "id", "id", "column of the payment's id")
	flags.StringVar(&c.time, "time", "", "column of the time, for periods")
	flags.StringVar(&c.layout, "time-layout", "", `layout of times, in the notation of Go, or "unix" (default RFC 3339)`)
	flags.StringSliceVar(&c.compare, "compare", nil, "columns that both sides have to agree on")
	flags.StringSliceVar(&c.amounts, "amounts", []string{"amount"}, "those of them that are decimals: 1.0 equals 1.00")
	flags.StringSliceVar(&c.ours, "ours", nil, "name of a column in our list, or of a part of our records: `NAME=COLUMN`")
	flags.StringSliceVar(&c.theirs, "theirs", nil, "name of a column in their list: `NAME=COLUMN`")
	flags.StringVar(&c.comma, "comma", ",", "separator of fields in CSV files")
	flags.StringArrayVar(&c.operations, "operation", nil, "operation whose records are our list, such as 'POST /payments'; may be repeated")
	flags.StringVar(&c.ledger, "ledger", "", "`NAME` of a ledger in the configuration")
	flags.StringVar(&c.day, "day", "", "the `DAY` to compare, as 2026-03-01 (with --ledger: default yesterday)")
	flags.StringVar(&c.zone, "time-zone", "UTC", "where the day begins and ends, such as Europe/Berlin")
	flags.DurationVar(&c.tolerance, "tolerance", 0, "how far apart the two sides may date a payment")
	flags.Var(&c.since, "since", "beginning of the period")
	flags.Var(&c.until, "until", "end of the period")
	flags.StringVar(&c.tokenFile, "token-file", "", "`FILE` with a bearer token for their URL")
	flags.BoolVar(&c.plainHTTP, "plain-http", false, "read their list over http from another machine: an attacker on the network could hide a payment")
	flags.Int64Var(&c.maxSize, "max-size", 0, "how many `BYTES` their list may have (default 1 GiB)")
	flags.StringVar(&c.namespace, "namespace", config.Namespace, "Options.Namespace of the engine, for downstream keys")
	flags.StringVar(&c.call, "call", config.UpstreamCall, "name of the outside call whose downstream key is the id")
	flags.BoolVar(&c.presorted, "presorted", false, "fail unless both lists are sorted by id, byte by byte")
	c.format = command.NewFormat(cmd, "text", "json", "html")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		switch {
		case c.ledger != "" && len(args) > 0:
			return exit.Usagef("--ledger says where both lists are; leave out %s", args[0])
		case c.tolerance < 0:
			return exit.Usagef("--tolerance %v is negative", c.tolerance).Hintf("say how far apart the two sides may date a payment, such as 5m")
		case c.ledger == "" && len(args) == 0:
			return exit.Usagef("THEIRS is missing").Hintf("name a file, a directory or a URL with their list, or a ledger of the configuration with --ledger")
		case len(args) == 2:
			return c.run(cmd.Context(), env, args[0], args[1])
		}
		job, err := c.job(env, cmd.Flags(), args)
		if err != nil {
			return err
		}
		return c.runJob(cmd.Context(), env, job)
	})
	stores.RefuseAdmin(cmd, "reconcile ledger reads answers from the database itself")
	return cmd
}

func (c *comparison) run(ctx context.Context, env *command.Env, ours, theirs string) error {
	switch {
	case ours == "-" && theirs == "-":
		return exit.Usagef("only one of the lists can be the standard input")
	case len(c.operations) > 0:
		return exit.Usagef("--operation is for a list from the store; leave out OURS, or --operation")
	case strings.Contains(theirs, "://"):
		return exit.Usagef("a list from a URL is compared with the records of a store; leave out OURS")
	}
	since, until, err := c.period(time.UTC)
	if err != nil {
		return err
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
	switch {
	case c.format.Is("json"):
		report = ledger.JSONLReport(env.Out)
	case c.format.Is("html"):
		report = ledger.HTMLReport(env.Out, ledger.Heading{Title: "ledger", Lines: []string{"ours: " + ours, "theirs: " + theirs}})
	}
	summary, err := ledger.Compare(ctx, sources[0], sources[1], progressReport{report, g}, &ledger.Options{Amounts: c.amounts, Since: since, Until: until, Lag: c.tolerance, Presorted: c.presorted})
	g.End()
	return ended(&summary, err)
}

// ended returns how the command ends.
func ended(summary *ledger.Summary, err error) error {
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

// period returns the period that the flags name.
func (c *comparison) period(zone *time.Location) (since, until time.Time, err error) {
	if c.day == "" {
		return c.since.Time, c.until.Time, nil
	}
	if !c.since.IsZero() || !c.until.IsZero() {
		return since, until, exit.Usagef("--day is a period of its own; leave out --since and --until")
	}
	if c.zone != "" {
		if zone, err = time.LoadLocation(c.zone); err != nil {
			return since, until, exit.Usagef("--time-zone %s is not a time zone such as Europe/Berlin", c.zone)
		}
	}
	day, err := daily.ParseDay(c.day)
	if err != nil {
		return since, until, exit.Usagef("--day: %v", err)
	}
	p := (&daily.Job{Zone: zone}).PeriodOf(day)
	return p.Since, p.Until, nil
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
