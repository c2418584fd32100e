package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/outbox"
)

func (p *program) outboxList(f *boxFlags) *cobra.Command {
	var failing, long, all bool
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, or messages that fail",
		Long: `Lists dead letters, the oldest first. With --failing it lists messages that have
failed and wait to be sent again; one that has a group holds up the others of it.`,
		Example: `  retrysafe outbox list
  # what fails, and is still being tried
  retrysafe outbox list --failing
  # for a script
  retrysafe outbox list --all --format json`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.BoolVar(&failing, "failing", false, "messages that fail and are still tried, instead of dead letters")
	flags.Int64Var(&after, "after", 0, "go on behind this ID")
	flags.IntVar(&limit, "limit", 100, "how many at most")
	flags.BoolVar(&all, "all", false, "all of them, however many")
	flags.BoolVar(&long, "long", false, "exact times, and more columns")
	format := formats(cmd, "table", "json", "csv")
	cmd.RunE = runs(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if limit < 1 {
			return misused("--limit %d is not above zero", limit).hinted("--all lists everything")
		}
		d, err := f.open(ctx, p)
		if err != nil {
			return err
		}
		defer d.close(ctx)
		letters := d.Letters(d.opened.Outbox, f.window)
		list := letters.List
		if failing {
			list = letters.Failing
		}
		columns := []string{"ID", "TOPIC", "GROUP", "TRIES", "AGE", "WHY"}
		if long {
			columns = append(columns, "ENQUEUED", "DIED", "KEY", "SETTLES", "PROVIDER REF", "REVISION")
		}
		t := newTable(p.stdout, format, columns...)
		const page = 500
		for found := 0; ; {
			ask := page
			if !all {
				ask = min(page, limit-found+1) // one more, to know whether there is
			}
			some, err := list(ctx, after, ask)
			if errors.Is(err, errors.ErrUnsupported) {
				return failed(exitNo, "this store cannot say what fails")
			}
			if err != nil {
				return d.trouble(err)
			}
			for i := range some {
				if !all && found == limit {
					fmt.Fprintf(p.stderr, "there is more: the same with --after %d\n", after)
					return t.flush()
				}
				l := &some[i]
				after = l.ID
				found++
				if format.value == "json" {
					if err := writeJSON(p.stdout, newLetterJSON(l, !failing, false)); err != nil {
						return err
					}
					continue
				}
				t.add(letterCells(l, long)...)
			}
			if len(some) < ask {
				if found == 0 {
					fmt.Fprintln(p.stderr, "none")
				}
				return t.flush()
			}
			if err := t.flush(); err != nil {
				return err
			}
		}
	})
	return cmd
}

func letterCells(l *outbox.Letter, long bool) []string {
	why := l.Why
	if l.Err != nil {
		why = l.Err.Error()
	}
	width := 60
	if long {
		width = 500
	}
	cells := []string{
		strconv.FormatInt(l.ID, 10), orNone(visible(l.Topic)), orNone(visible(l.Group)), strconv.Itoa(l.Tries), span(l.Age), orNone(clipped(visible(why), width)),
	}
	if long {
		settles := "-"
		if l.Settles != nil {
			settles = named(l.Settles.Scope) + " " + named(l.Settles.Key)
		}
		cells = append(cells, exact(l.Enqueued), exact(l.Died), orNone(visible(l.Key)), settles, orNone(visible(l.ProviderRef)), strconv.FormatInt(l.Revision, 10))
	}
	return cells
}
