package main

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysQuarantine(stores *storeFlags) *cobra.Command {
	var s operator.Suspects
	var since, until moment
	var flags actFlags
	var dry bool
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Set aside what a restored backup says has not happened yet",
		Long: `Sets aside as unknown whatever the store says has not happened yet: accepted, in
progress and retryable keys. It is for a store that is in doubt itself, because a
backup was restored or two primaries were at work: what it says has not happened may
have happened in the time that is lost. From then on no retry runs it; resolvers and
people find out. Answers stay: they were given, and are true.

Run it before traffic is let in. It first says what it would do. It can be run again at
any time, and one that was cut short goes on where it stopped, by its --id. What it
cannot do is bring back keys that were created in the lost time: they are free, and a
retry runs them. docs/runbook.md has the whole procedure.`,
		Example: `  # what it would do
  retrysafe keys quarantine --dry-run
  # do it
  retrysafe keys quarantine --id restore-2026-03-01 --why "restored the backup of 3 a.m."
  # keys and business data are in one database and were restored together
  retrysafe keys quarantine --spare-in-tx --why "restored the backup of 3 a.m." --yes`,
		Args: exactly(),
	}
	flags.who(cmd)
	flags.format = formats(cmd, "text", "json")
	cmd.Flags().BoolVar(&flags.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what it would do")
	cmd.Flags().Var(&since, "since", "leave out what was last written well before, as after a split brain")
	cmd.Flags().Var(&until, "until", "leave out what was written since, by traffic that was let in too early")
	cmd.Flags().StringVar(&s.Scope, "scope", "", "only keys of this scope")
	cmd.Flags().BoolVar(&s.SpareInTx, "spare-in-tx", false, "leave out operations whose effects were restored together with the keys")
	cmd.RunE = runs(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		s.Since, s.Until, s.Scope = since.Time, until.Time, unnamed(s.Scope)
		if !dry {
			if err := flags.check(p); err != nil {
				return err
			}
		}
		d, err := stores.open(ctx, p)
		if err != nil {
			return err
		}
		defer d.close(ctx)
		g := p.progress()
		s.Progress = func(r operator.Report) { g.show(int64(r.Looked), "looked at") }
		report, err := d.Survey(ctx, s)
		g.end()
		if err != nil {
			return d.trouble(err)
		}
		if dry {
			if flags.format.value == "json" {
				return writeJSON(p.stdout, report)
			}
			fmt.Fprintf(p.stdout, "would set aside %s of %s that are not final%s\n", grouped(int64(report.Quarantined)), grouped(int64(report.Looked)), unread(&report))
			return nil
		}
		if !flags.yes {
			if err := p.confirm(ctx, fmt.Sprintf("%s\n  %s of %s that are not final would be set aside as unknown%s\nNo retry runs them then, until somebody has found out about each.",
				d, many(int64(report.Quarantined), "key", "keys"), grouped(int64(report.Looked)), unread(&report))); err != nil {
				return err
			}
		}
		s.ID, s.By, s.Why = flags.id, flags.by, flags.why
		if s.ID == "" {
			s.ID = rand.Text() // the same words may be said of another backup some day
		}
		g = p.progress()
		s.Progress = func(r operator.Report) {
			g.show(int64(r.Looked), fmt.Sprintf("looked at, %s set aside", grouped(int64(r.Quarantined))))
		}
		e, err := d.Quarantine(ctx, s)
		g.end()
		switch {
		case errors.Is(err, operator.ErrInvalid), errors.Is(err, retrysafe.ErrMismatch):
			return misused("%v", err)
		case err != nil:
			return failed(exitUnsure, "it was cut short: %v", err).hinted("go on with the same line and: --by %s --id %s", word(flags.by), word(s.ID))
		}
		if flags.format.value == "json" {
			return writeJSON(p.stdout, entryJSON{e, e.Replayed})
		}
		if e.Report == nil {
			e.Report = new(operator.Report)
		}
		fmt.Fprintf(p.stdout, "set aside %s of %s that were not final%s\n", grouped(int64(e.Report.Quarantined)), grouped(int64(e.Report.Looked)), unread(e.Report))
		if e.Report.Moved > 0 {
			fmt.Fprintf(p.stdout, "%s changed meanwhile: traffic was let in too early; run it again\n", many(int64(e.Report.Moved), "key", "keys"))
		}
		if e.Replayed {
			fmt.Fprintf(p.stdout, "(this was done before, by this same action, at %s)\n", exact(e.At))
		}
		fmt.Fprintf(p.stdout, "action %s by %s\n", visible(e.ID), visible(e.By))
		return nil
	})
	return cmd
}

func unread(r *operator.Report) string {
	if r.Unreadable == 0 {
		return ""
	}
	return fmt.Sprintf("; %s cannot be read, and are refused to everybody", grouped(int64(r.Unreadable)))
}
