package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// A quarantine is what the flags of keys quarantine ask for.
type quarantine struct {
	suspects     operator.Suspects
	since, until command.Time
	flags        action.Flags
	dryRun       bool
	bulk         bulkFlags
}

func quarantineCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var q quarantine
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Set operations aside that a restored backup calls unfinished",
		Long: `Makes every operation unknown that has not ended according to the store: accepted, in
progress and retryable keys. It is for a store that cannot be trusted, because a backup
was restored or two primaries accepted writes: operations that have not happened
according to it may have happened in the time that is lost. From then on no retry runs
them; resolvers and operators find out. Stored answers stay: they were given, and are
true.

Run it before you let traffic in. It shows first what it would do. It can be run again
at any time, and one that was interrupted continues where it stopped, by its --id. It
cannot bring back keys that were created in the lost time: they are free, and a retry
runs them. docs/runbook.md has the whole procedure.

With --state, --operation, --reason, --upstream-status or --tenant it sets aside only what
matches: it counts the keys, asks you to type the count, and changes each one that is
still as it was counted. The audit then has one entry for all and one for each key.`,
		Example: `  # what it would do
  retrysafe keys quarantine --dry-run
  # do it
  retrysafe keys quarantine --id restore-2026-03-01 --why "restored the backup of 3 a.m."
  # only one operation, whose service has lost its data
  retrysafe keys quarantine --operation 'POST /charges' --dry-run
  # keys and business data are in one database and were restored together
  retrysafe keys quarantine --spare-in-tx --why "restored the backup of 3 a.m." --yes`,
		Args: command.Args(),
	}
	q.bulk.selectFlags = new(selectFlags)
	q.flags.AddAuthor(cmd)
	q.flags.Format = command.NewFormat(cmd, "text", "json")
	flags := cmd.Flags()
	flags.BoolVar(&q.flags.Yes, "yes", false, "do not ask")
	flags.BoolVar(&q.dryRun, "dry-run", false, "only show what it would do")
	flags.Var(&q.since, "since", "leave out records that were last written well before, as after a split brain")
	flags.Var(&q.until, "until", "leave out records that were written since, by traffic that was let in too early")
	flags.StringArrayVar(&q.bulk.states, "state", nil, "only keys in this state; may be repeated")
	flags.StringVar(&q.bulk.operation, "operation", "", "only keys of this operation, as 'POST /charges'; * stands for any text")
	flags.StringVar(&q.bulk.reason, "reason", "", "only keys with this reason; * stands for any text")
	q.bulk.addStatus(cmd)
	flags.StringVar(&q.bulk.tenant, "tenant", "", "only keys of this tenant")
	q.bulk.addMode(cmd)
	flags.StringVar(&q.suspects.Scope, "scope", "", "only keys of this scope")
	flags.BoolVar(&q.suspects.SpareInTx, "spare-in-tx", false, "leave out operations whose effects were restored together with the keys")
	command.Complete(cmd, "state", stateNames()...)
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		if q.bulk.states != nil || q.bulk.operation != "" || q.bulk.reason != "" || q.bulk.status != 0 || q.bulk.tenant != "" {
			return q.runBulk(cmd.Context(), env, target)
		}
		if q.bulk.yesCount != 0 || q.bulk.rate != 0 {
			return exit.Usagef("--yes-count and --rate are for keys that a filter selects").Hintf("add --state, --operation, --reason, --upstream-status or --tenant, or confirm the whole store with --yes")
		}
		return q.run(cmd.Context(), env, target)
	})
	return cmd
}

// runBulk sets aside what filters select.
func (q *quarantine) runBulk(ctx context.Context, env *command.Env, target *stores.Flags) error {
	if q.suspects.SpareInTx {
		return exit.Usagef("--spare-in-tx is for the whole store, not for what filters select")
	}
	q.bulk.since, q.bulk.until, q.bulk.dryRun = q.since, q.until, q.dryRun
	b := bulk{bulkFlags: &q.bulk, flags: &q.flags, batch: operator.Batch{Verb: "quarantine"},
		consequence: "They become unknown: no retry runs them then, until their outcomes are settled."}
	b.batch.Filter.Scope = printable.ParseName(q.suspects.Scope)
	return b.run(ctx, env, target)
}

func (q *quarantine) run(ctx context.Context, env *command.Env, target *stores.Flags) error {
	q.suspects.Since, q.suspects.Until, q.suspects.Scope = q.since.Time, q.until.Time, printable.ParseName(q.suspects.Scope)
	q.flags.ByToken = target.AdminURL != ""
	if !q.dryRun {
		if err := q.flags.Complete(env); err != nil {
			return err
		}
	}
	s, err := open(ctx, env, target)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := q.flags.Adopt(s.Person()); err != nil && !q.dryRun {
		return err
	}
	progress := env.Progress()
	q.suspects.Progress = func(r operator.Report) { progress.Show(int64(r.Looked), "read") }
	report, err := s.Survey(ctx, q.suspects)
	progress.End()
	if err != nil {
		return s.StoreError(err)
	}
	if q.dryRun {
		if q.flags.Format.Is("json") {
			return terminal.WriteJSON(env.Out, report)
		}
		fmt.Fprintf(env.Out, "would set aside %s of %s that are not final%s\n", terminal.Number(report.Quarantined), terminal.Number(report.Looked), unreadableText(&report))
		return nil
	}
	if !q.flags.Yes {
		if err := env.Confirm(ctx, fmt.Sprintf("%s\n  %s of %s that are not final would be set aside as unknown%s\nNo retry runs them then, until their outcomes are settled one by one.",
			s, terminal.Count(report.Quarantined, "key", "keys"), terminal.Number(report.Looked), unreadableText(&report))); err != nil {
			return err
		}
	}
	return q.act(ctx, env, s)
}

// act sets the records aside.
func (q *quarantine) act(ctx context.Context, env *command.Env, s *session) error {
	q.suspects.ID, q.suspects.By, q.suspects.Why = q.flags.ID, q.flags.By, q.flags.Why
	if q.suspects.ID == "" {
		q.suspects.ID = rand.Text() // not a hash: the same words may be about another backup some day
	}
	progress := env.Progress()
	q.suspects.Progress = func(r operator.Report) {
		progress.Show(int64(r.Looked), fmt.Sprintf("read, %s set aside", terminal.Number(r.Quarantined)))
	}
	e, err := s.Quarantine(ctx, q.suspects)
	progress.End()
	denied, isDenied := errors.AsType[*exit.Error](err)
	switch {
	case isDenied:
		return denied
	case errors.Is(err, operator.ErrInvalid), errors.Is(err, retrysafe.ErrMismatch):
		return exit.Usagef("%v", err)
	case err != nil:
		return exit.Errorf(exit.Unsure, "it was interrupted: %v", err).
			Hintf("continue with the same command and:%s --id %s", q.flags.AuthorWords(), terminal.ShellWord(q.suspects.ID))
	}
	if q.flags.Format.Is("json") {
		return terminal.WriteJSON(env.Out, action.EntryJSON{Entry: e, Replayed: e.Replayed})
	}
	if e.Report == nil {
		e.Report = new(operator.Report)
	}
	fmt.Fprintf(env.Out, "set aside %s of %s that were not final%s\n", terminal.Number(e.Report.Quarantined), terminal.Number(e.Report.Looked), unreadableText(e.Report))
	if e.Report.Moved > 0 {
		fmt.Fprintf(env.Out, "%s changed meanwhile: traffic was let in too early; run it again\n", terminal.Count(e.Report.Moved, "key", "keys"))
	}
	if e.Replayed {
		fmt.Fprintf(env.Out, "(this was done before, by this same action, at %s)\n", terminal.Exact(e.At))
	}
	fmt.Fprintf(env.Out, "action %s by %s\n", printable.Text(e.ID), printable.Text(e.By))
	return nil
}

func unreadableText(r *operator.Report) string {
	if r.Unreadable == 0 {
		return ""
	}
	return fmt.Sprintf("; %s cannot be read, and requests with them are refused", terminal.Number(r.Unreadable))
}
