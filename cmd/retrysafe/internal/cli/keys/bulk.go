package keys

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/operator"
)

// bulkFlags are the flags with which a command changes many keys at once.
type bulkFlags struct {
	*selectFlags
	dryRun         bool
	yesCount, rate int
}

func addBulkFlags(cmd *cobra.Command) *bulkFlags {
	f := &bulkFlags{selectFlags: addSelectFlags(cmd)}
	f.addMode(cmd)
	return f
}

func (f *bulkFlags) addMode(cmd *cobra.Command) {
	if cmd.Flags().Lookup("dry-run") == nil {
		cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "with filters: only count the keys, and show some")
	}
	cmd.Flags().IntVar(&f.yesCount, "yes-count", 0, "with filters: do not ask, and change nothing if more keys than this match")
	cmd.Flags().IntVar(&f.rate, "rate", 0, "with filters: how many keys to change in a second at most (default no limit)")
}

// bulkHelp is for the help texts of these commands.
const bulkHelp = `With filters instead of KEY it changes all keys that match: it counts them, asks you to
type the count, and changes each one that is still as it was counted. Keys that change
meanwhile, and disputed ones, are left as they are. The audit has one entry for all and
one for each key. If it is interrupted, the same command goes on with what still
matches.

` + selecting

// keyOrFilters is for commands that take one key, or filters.
func keyOrFilters(f *bulkFlags) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch given := f.given(cmd); {
		case len(args) == 0 && given:
			return nil
		case given:
			return errors.New("a KEY and filters exclude each other: name one key, or select many")
		case len(args) == 0:
			return errors.New("KEY is missing, or a filter such as --operation")
		}
		for _, name := range []string{"dry-run", "yes-count", "rate"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s is for filters, not for one KEY", name)
			}
		}
		return oneKey(cmd, args)
	}
}

// A bulk is one change of many keys.
type bulk struct {
	*bulkFlags
	flags *action.Flags
	batch operator.Batch
	// consequence is shown before the change is confirmed.
	consequence string
}

// run counts the keys, has the count confirmed, and changes them.
func (b *bulk) run(ctx context.Context, env *command.Env, target *stores.Flags) error {
	b.flags.ByToken = target.AdminURL != ""
	if err := b.parse(env); err != nil {
		return err
	}
	s, err := open(ctx, env, target)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := b.flags.Adopt(s.Person()); err != nil {
		return err
	}
	sel, err := s.Select(ctx, b.batch)
	switch {
	case errors.Is(err, operator.ErrInvalid):
		return exit.Usagef("%v", err)
	case err != nil:
		return s.StoreError(err)
	case b.dryRun:
		return b.show(env, sel)
	case sel.Count == 0 && b.flags.ID == "":
		return exit.Errorf(exit.No, "no keys match%s; nothing was done", leftOut(sel)).Hintf("see what needs a person: retrysafe keys groups%s", s.Again())
	case b.yesCount > 0 && sel.Count > b.yesCount:
		return exit.Errorf(exit.No, "%s, and only %s were confirmed; nothing was done", matching(sel), terminal.Number(b.yesCount)).
			Hintf("look again with --dry-run, and confirm with --yes-count %d", sel.Count)
	case b.yesCount == 0 && sel.Count > 0:
		if err := env.ConfirmCount(ctx, b.question(s, sel), sel.Count); err != nil {
			return err
		}
	}
	return b.apply(ctx, env, s, sel)
}

// parse checks the flags and completes the batch.
func (b *bulk) parse(env *command.Env) (err error) {
	scope := b.batch.Filter.Scope
	if b.batch.Filter, err = b.filter(); err != nil {
		return err
	}
	b.batch.Filter.Scope = scope
	switch {
	case b.rate < 0:
		return exit.Usagef("--rate %d is negative", b.rate)
	case b.yesCount < 0:
		return exit.Usagef("--yes-count %d is negative", b.yesCount)
	case b.flags.Revision != 0:
		return exit.Usagef("--revision is for one key").Hintf("with filters each key is changed at the revision at which it was counted")
	case b.flags.Yes:
		return exit.Usagef("--yes confirms the change of one key").Hintf("for many, confirm their number: --yes-count N, which --dry-run shows")
	case b.dryRun:
		return nil
	}
	if err := b.flags.Complete(env); err != nil {
		return err
	}
	b.batch.ID, b.batch.By, b.batch.Why, b.batch.Rate = cmp.Or(b.flags.ID, rand.Text()), b.flags.By, b.flags.Why, b.rate
	return nil
}

// selectionJSON is what would be changed, for scripts.
type selectionJSON struct {
	Count      int          `json:"count"`
	Disputed   int          `json:"disputed,omitempty"`
	Unreadable int          `json:"unreadable,omitempty"`
	Sample     []recordJSON `json:"sample"`
}

// show shows what would be changed.
func (b *bulk) show(env *command.Env, sel *adminwire.Counted) error {
	if b.flags.Format.Is("json") {
		j := selectionJSON{Count: sel.Count, Disputed: sel.Disputed, Unreadable: sel.Unreadable, Sample: []recordJSON{}}
		for i := range sel.Sample {
			j.Sample = append(j.Sample, newRecordJSON(&sel.Sample[i], false, false))
		}
		return terminal.WriteJSON(env.Out, j)
	}
	fmt.Fprintf(env.Out, "would %s %s%s\n", b.batch.Verb, terminal.Count(sel.Count, "key", "keys"), leftOut(sel))
	if sel.Count == 0 {
		return nil
	}
	fmt.Fprintln(env.Out)
	if err := sampleTable(env, sel); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "\nTo do it, the same without --dry-run; in a script, with --yes-count %d.\n", sel.Count)
	return nil
}

// sampleTable writes some of the keys.
func sampleTable(env *command.Env, sel *adminwire.Counted) error {
	t := terminal.NewTable(env.Out, false, "SCOPE", "KEY", "STATE", "OPERATION", "STATUS", "CREATED", "REASON")
	for i := range sel.Sample {
		r := &sel.Sample[i]
		t.Add(printable.Name(r.Scope), printable.Name(r.Key), stateText(&r.Record), terminal.OrDash(printable.Text(r.Operation)), upstreamStatus(&r.Record),
			terminal.Ago(r.CreatedAt, r.ReadAt), terminal.OrDash(terminal.Clip(printable.Text(r.Reason), 60)))
	}
	if more := sel.Count - len(sel.Sample); more > 0 {
		t.Add(fmt.Sprintf("and %s more", terminal.Number(more)))
	}
	return t.Flush()
}

// upstreamStatus returns the status of the service that an attempt failed with.
func upstreamStatus(r *retrysafe.Record) string {
	if status := failreason.Status(r.Reason); status != 0 {
		return strconv.Itoa(status)
	}
	return "-"
}

// matching says how many keys match.
func matching(sel *adminwire.Counted) string {
	return terminal.Count(sel.Count, "key matches", "keys match")
}

// leftOut says which keys are left out although they may match.
func leftOut(sel *adminwire.Counted) (text string) {
	if sel.Disputed > 0 {
		text += fmt.Sprintf("; %s left out, to be settled one by one", terminal.Count(sel.Disputed, "disputed one is", "disputed ones are"))
	}
	if sel.Unreadable > 0 {
		text += fmt.Sprintf("; %s cannot be read, and left out", terminal.Count(sel.Unreadable, "record", "records"))
	}
	return text
}

// question returns what is about to be changed, and the consequence.
func (b *bulk) question(s *session, sel *adminwire.Counted) string {
	text := fmt.Sprintf("%s\n  %s%s", s, matching(sel), leftOut(sel))
	for i := range min(3, len(sel.Sample)) {
		r := &sel.Sample[i]
		text += fmt.Sprintf("\n  %s %s: %s, %s", printable.Name(r.Scope), printable.Name(r.Key), stateText(&r.Record), terminal.OrDash(printable.Text(r.Operation)))
	}
	if sel.Count > 3 {
		text += "\n  …"
	}
	return text + "\n" + b.consequence
}

// apply changes the keys.
func (b *bulk) apply(ctx context.Context, env *command.Env, s *session, sel *adminwire.Counted) error {
	progress, last := env.Progress(), operator.BatchReport{}
	b.batch.Progress = func(r operator.BatchReport) {
		last = r
		progress.Show(int64(r.Done+r.Changed+r.Refused), fmt.Sprintf("of %s", terminal.Count(r.Counted, "key", "keys")))
	}
	e, err := s.Apply(ctx, b.batch, sel)
	progress.End()
	denied, isDenied := errors.AsType[*exit.Error](err)
	switch {
	case isDenied:
		return denied
	case errors.Is(err, operator.ErrInvalid), errors.Is(err, retrysafe.ErrMismatch):
		return exit.Usagef("%v", err)
	case err != nil:
		return exit.Errorf(exit.Unsure, "it was interrupted after %s: %v", terminal.Count(last.Done, "key", "keys"), err).
			Hintf("go on with the same command and:%s --id %s%s", b.flags.AuthorWords(), terminal.ShellWord(b.batch.ID), b.times())
	}
	return b.report(env, s, &e)
}

// times returns the flags for times that were given as how long ago they were.
func (b *bulk) times() string {
	return selectWords(&operator.Filter{Since: b.batch.Filter.Since, Until: b.batch.Filter.Until})
}

// report says how it ended.
func (b *bulk) report(env *command.Env, s *session, e *operator.Entry) error {
	if e.Counts == nil {
		e.Counts = new(operator.BatchReport)
	}
	if b.flags.Format.Is("json") {
		if err := terminal.WriteJSON(env.Out, action.EntryJSON{Entry: *e, Replayed: e.Replayed}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(env.Out, "%s: %s of %s\n", action.Done(e.Verb), terminal.Number(e.Counts.Done), terminal.Count(e.Counts.Counted, "key", "keys"))
		if e.Counts.Changed > 0 {
			fmt.Fprintf(env.Out, "%s since the count, and left as they are\n", terminal.Count(e.Counts.Changed, "key has changed", "keys have changed"))
		}
		if e.Replayed {
			fmt.Fprintf(env.Out, "(this was done before, by this same action, at %s)\n", terminal.Exact(e.At))
		}
		fmt.Fprintf(env.Out, "action %s by %s\n", printable.Text(e.ID), printable.Text(e.By))
	}
	if e.Counts.Refused > 0 {
		return exit.Errorf(exit.No, "%s refused", terminal.Count(e.Counts.Refused, "key was", "keys were")).
			Hintf("see why: retrysafe keys audit%s --batch %s --long", s.Again(), terminal.ShellWord(e.ID))
	}
	return nil
}
