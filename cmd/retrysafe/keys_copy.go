package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

func (p *program) keysCopy() *cobra.Command {
	var dry, abandon, yes bool
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Move all keys into another store, while the first one serves",
		Long: `Moves all records of one store into another, empty one: from SQLite to PostgreSQL when
one machine is outgrown, or wherever else. Gateways and programs may go on using the
first store meanwhile. At the end it is closed for good, in one step: whoever still
points at it is told where the records are, and nothing runs there. There is no moment
in which a key could run twice. docs/moving.md has the whole procedure.

If it is cut short, the same line again finishes it or begins anew; until the end the
first store serves on. --abandon undoes what was begun. Encrypted records stay so, and
need no keys here.

Both stores are arguments. --store, --config and --keys-file play no part.`,
		Example: `  # whether it could begin, and how much there is
  retrysafe keys copy --dry-run sqlite:retrysafe.db postgres://app@db/app
  # do it
  retrysafe keys copy sqlite:retrysafe.db postgres://app@db/app
  # it was cut short, and the first store is to be kept
  retrysafe keys copy --abandon sqlite:retrysafe.db postgres://app@db/app`,
		Args: exactly("FROM", "TO"),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "change nothing: only say whether it could begin, and how many keys there are")
	cmd.Flags().BoolVar(&abandon, "abandon", false, "undo what an earlier run has begun")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "abandon")
	format := formats(cmd, "text", "json")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		from, to := &address{url: args[0]}, &address{url: args[1]}
		for _, a := range []*address{from, to} {
			var err error
			if a.at, err = storeurl.Parse(a.url); err != nil {
				return misused("%v", err)
			}
		}
		if from.at == to.at {
			return misused("both are %s", from)
		}
		source, err := from.openMoving(ctx, false)
		if err != nil {
			return err
		}
		defer source.Close()
		if !yes && !dry && !abandon {
			if err := p.confirm(ctx, fmt.Sprintf("all keys of  %s\nmove into    %s\nThe first is closed for good at the end. Whoever uses it gets a 503 then, until its configuration names the second.", from, to)); err != nil {
				return err
			}
		}
		destination, err := to.openMoving(ctx, !dry)
		if err != nil {
			return err
		}
		defer destination.Close()
		if abandon {
			if err := move.Abandon(ctx, source.Store, destination.Store); err != nil {
				return moveTrouble(err)
			}
			fmt.Fprintf(p.stdout, "%s serves on, and %s is empty\n", from, to)
			return nil
		}
		g := p.progress()
		report, err := move.Records(ctx, source.Store, destination.Store, &move.Options{
			From: from.String(), To: to.String(), DryRun: dry,
			Progress: func(at move.Progress) { g.show(int64(at.Records+at.Again), "copied, "+string(at.Stage)) },
		})
		g.end()
		if err != nil {
			return moveTrouble(err)
		}
		if format.value == "json" {
			return writeJSON(p.stdout, newMoved(&report, dry))
		}
		fmt.Fprint(p.stdout, movedText(&report, from, to, dry))
		return nil
	})
	return cmd
}

// openMoving opens a store as it is, below any seal, for a move. One that is to be
// filled is made, if it is not there.
func (a *address) openMoving(ctx context.Context, create bool) (*storeurl.Opened, error) {
	switch {
	case a.at.Kind == storeurl.Memory:
		return nil, misused("what is in memory is in one process only, and cannot be moved by another")
	case !create && isMissing(a):
		return nil, failed(exitStore, "there is no store at %s: no such file", a)
	}
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	o, err := storeurl.Open(ctx, a.url, &storeurl.Options{SkipMigrations: !create, Moving: true})
	return o, a.trouble(err)
}

// moveTrouble says why a move has come to nothing, or whether that is not known.
func moveTrouble(err error) error {
	switch {
	case errors.Is(err, move.ErrUnsure), errors.Is(err, move.ErrNotOpened):
		return failed(exitUnsure, "%v", err)
	case refusedMove(err):
		return failed(exitNo, "not moved: %v", err)
	default:
		return failed(exitStore, "not moved, the first store serves on: %v", err).hinted("the same line again begins anew, and --abandon undoes it")
	}
}

// refusedMove reports whether a move is not to be, rather than failed.
func refusedMove(err error) bool {
	for _, reason := range []error{ // of any store
		move.ErrKind, storemove.ErrMoved, storemove.ErrNotEmpty, storemove.ErrUndelivered, storemove.ErrOvertaken, storemove.ErrFilling,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// moved is what a move did, for scripts.
type moved struct {
	DryRun   bool           `json:"dry_run,omitempty"`
	Records  int            `json:"records"`
	States   map[string]int `json:"states"`
	Again    int            `json:"again"`
	Cut      float64        `json:"cut_seconds"`
	Took     float64        `json:"took_seconds"`
	Finished bool           `json:"finished_an_earlier_run,omitempty"`
}

func newMoved(r *move.Report, dry bool) moved {
	m := moved{DryRun: dry, Records: r.Records, States: map[string]int{}, Again: r.Again, Cut: r.Cut.Seconds(), Took: r.Took.Seconds(), Finished: r.Finished}
	for s, n := range r.States {
		m.States[s.String()] = n
	}
	return m
}

func movedText(r *move.Report, from, to *address, dry bool) string {
	var states []string
	for _, s := range slices.Sorted(maps.Keys(r.States)) {
		states = append(states, grouped(int64(r.States[s]))+" "+s.String())
	}
	of := ""
	if len(states) > 0 {
		of = " (" + strings.Join(states, ", ") + ")"
	}
	switch {
	case dry:
		return fmt.Sprintf("%s could move from %s to %s%s\n", many(int64(r.Records), "key", "keys"), from, to, of)
	case r.Finished:
		return fmt.Sprintf("an earlier run had moved all keys; %s is open now, and %s is closed\n", to, from)
	}
	return fmt.Sprintf("%s moved from %s to %s%s, %s of them again, in %v; nobody could write for %v\n%s is closed: point every configuration to %s\n",
		many(int64(r.Records), "key", "keys"), from, to, of, grouped(int64(r.Again)), r.Took.Round(time.Millisecond), r.Cut.Round(time.Millisecond), from, to)
}
