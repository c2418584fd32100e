package keys

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

func auditCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var f operator.AuditFilter
	var since, before command.Time
	var long bool
	cmd := &cobra.Command{
		Use:   "audit [SCOPE KEY]",
		Short: "Show what operators did, to which key and why",
		Long: `Shows what operators did and were refused, the newest first: everything, or what was
done to one key. An entry that is open was begun, and its end is not stored: repeat the
action with its --id to find out how it ended.

A change of many keys is one entry; --batch shows the keys of it.`,
		Example: `  # what happened tonight
  retrysafe keys audit --since 12h
  # what was done to one key
  retrysafe keys audit tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324
  # the keys of one change of many
  retrysafe keys audit --batch after-the-outage
  # for a script: everything that anna released this year
  retrysafe keys audit --by anna --verb release --since 2026-01-01 --limit 10000 --format json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return command.Args("SCOPE", "KEY")(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.By, "by", "", "only actions of this person")
	flags.StringVar(&f.Verb, "verb", "", `only this: resolve, release, "drop letter", …`)
	flags.Var(&since, "since", "only actions since a time, or since so long ago")
	flags.Var(&before, "before", "only actions before a time")
	flags.StringVar(&f.Batch, "batch", "", "the single keys of the change of many keys with this ID")
	flags.IntVar(&f.Limit, "limit", 100, "how many; those of the same moment as the last one come too")
	flags.BoolVar(&long, "long", false, "exact times, and more columns")
	format := command.NewFormat(cmd, "table", "json", "csv")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if f.Limit < 1 {
			return exit.Usagef("--limit %d is not above zero", f.Limit)
		}
		if len(args) > 0 {
			f.Ref = keyref.Parse(args)
		}
		f.Since, f.Before = since.Time, before.Time
		s, err := open(ctx, env, target)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		entries, err := s.Audit(ctx, f)
		if err != nil {
			return s.StoreError(err)
		}
		if len(entries) == 0 {
			fmt.Fprintln(env.Err, "nothing")
		}
		columns := []string{"WHEN", "BY", "VERB", "SCOPE", "KEY", "OUTCOME", "WHY"}
		if long {
			columns = append(columns, "FROM", "TO", "ID", "TEXT")
		}
		t := terminal.NewTable(env.Out, format.Is("csv"), columns...)
		for i := range entries {
			if format.Is("json") {
				if err := terminal.WriteJSON(env.Out, entries[i]); err != nil {
					return err
				}
				continue
			}
			t.Add(auditCells(&entries[i], long || format.Is("csv"), long)...)
		}
		return t.Flush()
	})
	return cmd
}

// auditCells returns the row of an entry.
func auditCells(e *operator.Entry, exact, long bool) []string {
	cells := []string{
		terminal.Time(e.At, time.Now(), exact), terminal.OrDash(printable.Text(e.By)), terminal.OrDash(printable.Text(e.Verb)),
		printable.Name(e.Ref.Scope), auditKey(e), outcomeText(e), terminal.OrDash(printable.Text(e.Why)),
	}
	if long {
		cells = append(cells, pointText(e.From), pointText(e.To), printable.Text(e.ID), terminal.OrDash(printable.Text(auditText(e))))
	}
	return cells
}

// auditText returns why an action was refused, or what a batch has selected.
func auditText(e *operator.Entry) string {
	if e.Counts == nil {
		return e.Text
	}
	text := e.Counts.Filter
	if e.Counts.Changed > 0 {
		text += fmt.Sprintf("; %s since the count", terminal.Count(e.Counts.Changed, "key had changed", "keys had changed"))
	}
	if e.Counts.Refused > 0 {
		text += fmt.Sprintf("; %s refused", terminal.Count(e.Counts.Refused, "key was", "keys were"))
	}
	return text
}

// auditKey returns the key of an entry, or how many keys a batch has changed.
func auditKey(e *operator.Entry) string {
	if e.Counts == nil {
		return printable.Name(e.Ref.Key)
	}
	return fmt.Sprintf("%s of %s", terminal.Number(e.Counts.Done), terminal.Count(e.Counts.Counted, "key", "keys"))
}

// outcomeText returns how an action ended, and the code of a refusal.
func outcomeText(e *operator.Entry) string {
	outcome := terminal.OrDash(printable.Text(string(e.Outcome)))
	if e.Code != "" {
		outcome += " (" + printable.Text(e.Code) + ")"
	}
	return outcome
}

func pointText(at operator.Snapshot) string {
	if !at.State.Valid() {
		return "-"
	}
	return at.String()
}
