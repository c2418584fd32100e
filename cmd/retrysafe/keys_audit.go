package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysAudit(stores *storeFlags) *cobra.Command {
	var f operator.AuditFilter
	var since, before moment
	var long bool
	cmd := &cobra.Command{
		Use:   "audit [SCOPE KEY]",
		Short: "Show who did what to which key, and why",
		Long: `Shows what people did and were refused, the newest first: all of it, or what was done
to one key. An entry that is open was begun, and its end is not stored: whoever
repeats the action with its --id finds out how it ended.`,
		Example: `  # what happened tonight
  retrysafe keys audit --since 12h
  # what was done to one key
  retrysafe keys audit tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324
  # for a script: all that anna released this year
  retrysafe keys audit --by anna --verb release --since 2026-01-01 --limit 10000 --format json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactly("SCOPE", "KEY")(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.By, "by", "", "only what this person did")
	flags.StringVar(&f.Verb, "verb", "", `only this: resolve, release, "drop letter", …`)
	flags.Var(&since, "since", "only what was asked for since a time, or so long ago")
	flags.Var(&before, "before", "only what was asked for before a time")
	flags.IntVar(&f.Limit, "limit", 100, "how many at most")
	flags.BoolVar(&long, "long", false, "exact times, and more columns")
	format := formats(cmd, "table", "json", "csv")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if f.Limit < 1 {
			return misused("--limit %d is not above zero", f.Limit)
		}
		if len(args) > 0 {
			f.Ref = refOf(args)
		}
		f.Since, f.Before = since.Time, before.Time
		d, err := stores.open(ctx, p)
		if err != nil {
			return err
		}
		defer d.close(ctx)
		entries, err := d.Audit(ctx, f)
		if err != nil {
			return d.trouble(err)
		}
		if len(entries) == 0 {
			fmt.Fprintln(p.stderr, "nothing")
		}
		columns := []string{"WHEN", "BY", "VERB", "SCOPE", "KEY", "OUTCOME", "WHY"}
		if long {
			columns = append(columns, "FROM", "TO", "ID", "TEXT")
		}
		t := newTable(p.stdout, format, columns...)
		now := time.Now()
		for i := range entries {
			e := &entries[i]
			if format.value == "json" {
				if err := writeJSON(p.stdout, *e); err != nil {
					return err
				}
				continue
			}
			cells := []string{when(e.At, now, long || format.value == "csv"), orNone(visible(e.By)), orNone(visible(e.Verb)), named(e.Ref.Scope), named(e.Ref.Key), outcomeOf(e), orNone(visible(e.Why))}
			if long {
				cells = append(cells, pointOf(e.From), pointOf(e.To), visible(e.ID), orNone(visible(e.Text)))
			}
			t.add(cells...)
		}
		return t.flush()
	})
	return cmd
}

// outcomeOf says how an action ended, and why if it was refused.
func outcomeOf(e *operator.Entry) string {
	if e.Code == "" {
		return cmp.Or(visible(string(e.Outcome)), "-")
	}
	return visible(string(e.Outcome)) + " (" + visible(e.Code) + ")"
}

func pointOf(at operator.Point) string {
	if !at.State.Valid() {
		return "-"
	}
	return at.String()
}
