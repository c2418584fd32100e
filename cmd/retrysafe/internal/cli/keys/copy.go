package keys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// A copying is what the flags of keys copy ask for.
type copying struct {
	dryRun, prepare, abandon, yes bool
	format                        *command.Choice
}

func copyCommand(env *command.Env) *cobra.Command {
	var c copying
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Move all keys into another store, while the first one serves",
		Long: `Moves all records of one store into another, empty one: from SQLite to PostgreSQL when
one machine is not enough any more, or between any two stores. Gateways and programs may
go on using the first store meanwhile. At the end it is closed for good, in one step: a
program that still uses it is told where the records are, and nothing runs there. There
is no moment in which a key could run twice. docs/moving.md has the whole procedure.

If it is interrupted, the same command again finishes it or starts over; until the end
the first store stays in service. --abandon undoes what was begun. Encrypted records
stay encrypted, and their keys are not needed here.

Until the copy begins, the second store takes every key as a new one. --prepare closes it
before: gateways that have it open answer 503 until a copy has filled it, and none starts
on it.`,
		Example: `  # whether it could begin, and how much there is
  retrysafe keys copy --dry-run sqlite:retrysafe.db postgres://app@db/app
  # close the second store before, so that gateways on it run no key that it does not have yet
  retrysafe keys copy --prepare sqlite:retrysafe.db postgres://app@db/app
  # do it
  retrysafe keys copy sqlite:retrysafe.db postgres://app@db/app
  # it was interrupted, and the first store is to be kept
  retrysafe keys copy --abandon sqlite:retrysafe.db postgres://app@db/app`,
		Args: command.Args("FROM", "TO"),
	}
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "change nothing: only show whether it could begin, and how many keys there are")
	cmd.Flags().BoolVar(&c.prepare, "prepare", false, "only close the second store, which is empty, until a copy fills it")
	cmd.Flags().BoolVar(&c.abandon, "abandon", false, "undo what an earlier run has begun")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "prepare", "abandon")
	c.format = command.NewFormat(cmd, "text", "json")
	for _, name := range oneStore {
		cmd.Flags().String(name, "", "")
		cmd.Flags().Lookup(name).Hidden = true
	}
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		for _, name := range oneStore {
			if cmd.Flags().Changed(name) {
				return exit.Usagef("keys copy needs both databases themselves, as arguments; --%s is not for it", name).Hintf("run it where both can be reached, with FROM and TO")
			}
		}
		return c.run(cmd.Context(), env, args[0], args[1])
	})
	return cmd
}

// oneStore are the flags of the group that name one store, which keys copy refuses.
var oneStore = []string{"store", "config", "keys-file", "admin", "admin-token-file"}

func (c *copying) run(ctx context.Context, env *command.Env, fromURL, toURL string) error {
	from, err := stores.ParseArgument(fromURL)
	if err != nil {
		return err
	}
	to, err := stores.ParseArgument(toURL)
	if err != nil {
		return err
	}
	if from.Address == to.Address {
		return exit.Usagef("both are %s", from)
	}
	source, err := openForMove(ctx, from, false)
	if err != nil {
		return err
	}
	defer source.Close()
	if !c.yes && !c.dryRun && !c.prepare && !c.abandon {
		if err := env.Confirm(ctx, fmt.Sprintf("all keys of  %s\nmove into    %s\nThe first is closed for good at the end. Programs that use it get a 503 then, until their configuration names the second.", from, to)); err != nil {
			return err
		}
	}
	var destination retrysafe.Store // nil: a dry run creates none
	if !c.dryRun || !isNew(ctx, to) {
		opened, err := openForMove(ctx, to, !c.dryRun)
		if err != nil {
			return err
		}
		defer opened.Close()
		destination = opened.Store
	}
	switch {
	case c.prepare:
		if err := move.Prepare(ctx, source.Store, destination, &move.Options{From: from.String()}); err != nil {
			return moveError(err, to)
		}
		fmt.Fprintf(env.Out, "%s is closed until the keys are there, and %s stays in service; next: the same command without --prepare\n", to, from)
		return nil
	case c.abandon:
		if err := move.Abandon(ctx, source.Store, destination); err != nil {
			return moveError(err, to)
		}
		fmt.Fprintf(env.Out, "%s stays in service, and %s is empty\n", from, to)
		return nil
	}
	progress := env.Progress()
	report, err := move.Records(ctx, source.Store, destination, &move.Options{
		From: from.String(), To: to.String(), DryRun: c.dryRun,
		Progress: func(at move.Progress) { progress.Show(int64(at.Records+at.Again), "copied, "+string(at.Stage)) },
	})
	progress.End()
	if err != nil {
		return moveError(err, to)
	}
	if c.format.Is("json") {
		return terminal.WriteJSON(env.Out, newMoveJSON(&report, c.dryRun))
	}
	fmt.Fprint(env.Out, moveText(&report, from, to, c.dryRun))
	return nil
}

// isNew reports whether nothing is at a store's address yet, neither tables nor a file.
func isNew(ctx context.Context, l *stores.Location) bool {
	if l.Missing() {
		return true
	}
	s, err := l.Status(ctx)
	return err == nil && s.Version == 0
}

// openForMove opens a store as it is stored, without decrypting it. If create is true
// it is created if necessary.
func openForMove(ctx context.Context, l *stores.Location, create bool) (*storeurl.Opened, error) {
	switch {
	case l.Address.Kind == storeurl.Memory:
		return nil, exit.Usagef("a memory: store exists in its own process only, and cannot be moved by another")
	case !create && l.Missing():
		return nil, exit.Errorf(exit.Store, "there is no store at %s: no such file", l)
	}
	ctx, cancel := context.WithTimeout(ctx, stores.Timeout)
	defer cancel()
	o, err := storeurl.Open(ctx, l.URL, &storeurl.Options{SkipMigrations: !create, Moving: true})
	return o, l.StoreError(err)
}

// moveError returns the error of a move into a store: whether it was refused, failed, or
// may have been completed.
func moveError(err error, to *stores.Location) error {
	reason, text := refusal(err), exit.Plain(err)
	switch {
	case errors.Is(err, move.ErrUnsure), errors.Is(err, move.ErrNotOpened), errors.Is(err, move.ErrUnseen):
		return exit.Errorf(exit.Unsure, "%v", err)
	case reason == nil:
		return exit.Errorf(exit.Store, "not moved, the first store stays in service: %v", err).Hintf("the same command again starts over, and --abandon undoes it")
	}
	destination := errors.Is(err, move.ErrDestination)
	if _, said, ok := strings.Cut(text, exit.Plain(reason)); ok {
		text = exit.Plain(reason) + said // without the steps in front of it
	}
	switch {
	case errors.Is(reason, storemove.ErrMoved) && !destination:
		return exit.Errorf(exit.No, "already moved: %s", text)
	case errors.Is(reason, storemove.ErrNotEmpty):
		return exit.Errorf(exit.No, "not moved: %s: %s", to, text).
			Hintf("retrysafe keys list%s shows its keys; name another file, schema, database, prefix or table", to.Repeat)
	case destination:
		return exit.Errorf(exit.No, "not moved: %s: %s", to, text)
	}
	return exit.Errorf(exit.No, "not moved: %s", text)
}

// refusal returns why a store refused the move, or nil if it did not.
func refusal(err error) error {
	for _, reason := range []error{ // the errors are the same for every store
		move.ErrKind, storemove.ErrMoved, storemove.ErrNotEmpty, storemove.ErrLeaving, storemove.ErrUndelivered, storemove.ErrOvertaken, storemove.ErrFilling,
	} {
		if errors.Is(err, reason) {
			return reason
		}
	}
	return nil
}

// moveJSON is the report of a move for scripts.
type moveJSON struct {
	DryRun   bool           `json:"dry_run,omitempty"`
	Records  int            `json:"records"`
	States   map[string]int `json:"states"`
	Again    int            `json:"again"`
	Cut      float64        `json:"cut_seconds"`
	Took     float64        `json:"took_seconds"`
	Finished bool           `json:"finished_an_earlier_run,omitempty"`
}

func newMoveJSON(r *move.Report, dryRun bool) moveJSON {
	m := moveJSON{DryRun: dryRun, Records: r.Records, States: map[string]int{}, Again: r.Again, Cut: r.Cut.Seconds(), Took: r.Took.Seconds(), Finished: r.Finished}
	for s, n := range r.States {
		m.States[s.String()] = n
	}
	return m
}

// moveText is the report of a move for people.
func moveText(r *move.Report, from, to *stores.Location, dryRun bool) string {
	var states []string
	for _, s := range slices.Sorted(maps.Keys(r.States)) {
		states = append(states, terminal.Number(r.States[s])+" "+s.String())
	}
	of := ""
	if len(states) > 0 {
		of = " (" + strings.Join(states, ", ") + ")"
	}
	switch {
	case dryRun:
		return fmt.Sprintf("%s could move from %s to %s%s\n", terminal.Count(r.Records, "key", "keys"), from, to, of)
	case r.Finished:
		return fmt.Sprintf("an earlier run had moved all keys; %s is open now, and %s is closed\n", to, from)
	}
	return fmt.Sprintf("%s moved from %s to %s%s, %s of them again, in %v; no program could write for %v\n%s is closed: point every configuration to %s\n",
		terminal.Count(r.Records, "key", "keys"), from, to, of, terminal.Number(r.Again), r.Took.Round(time.Millisecond), r.Cut.Round(time.Millisecond), from, to)
}
