package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/outbox"
)

func (p *program) outboxShow(f *boxFlags) *cobra.Command {
	var body, long bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a message, and what may be done about it",
		Long: `Shows a dead letter, or a message that fails, and prints the exact command for each
thing that a person may do about it.`,
		Example: `  retrysafe outbox show 17
  # with what it carries
  retrysafe outbox show 17 --body`,
		Args: exactly("ID"),
	}
	cmd.Flags().BoolVar(&body, "body", false, "show the payload too")
	cmd.Flags().BoolVar(&long, "long", false, "exact times")
	format := formats(cmd, "text", "json")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		id, err := letterID(args[0])
		if err != nil {
			return err
		}
		d, err := f.open(ctx, p)
		if err != nil {
			return err
		}
		defer d.close(ctx)
		l, dead, err := find(ctx, d, d.Letters(d.opened.Outbox, f.window), id)
		if err != nil {
			return err
		}
		if format.value == "json" {
			return writeJSON(p.stdout, newLetterJSON(&l, dead, body))
		}
		showLetter(p.stdout, &l, dead, d.again, body, long)
		return nil
	})
	return cmd
}

func showLetter(w io.Writer, l *outbox.Letter, dead bool, again string, body, long bool) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	now := l.Enqueued.Add(l.Age) // the store's
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("message", "%d", l.ID)
	row("topic", "%s", orNone(visible(l.Topic)))
	row("group", "%s", orNone(visible(l.Group)))
	row("key", "%s", orNone(visible(l.Key)))
	row("enqueued", "%s", when(l.Enqueued, now, long))
	if dead {
		row("died", "%s", when(l.Died, now, long))
	}
	row("sent", "%s", many(int64(l.Tries), "time", "times"))
	row("why", "%s", cmp.Or(visible(l.Why), "-"))
	if l.Err != nil {
		row("unreadable", "%s", visible(l.Err.Error()))
	}
	if l.ProviderRef != "" {
		row("provider ref", "%s", visible(l.ProviderRef))
	}
	if l.Settles != nil {
		row("settles", "%s %s", named(l.Settles.Scope), named(l.Settles.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		row("header", "%s: %s", visible(name), visible(l.Header[name]))
	}
	row("payload", "%s", many(int64(len(l.Payload)), "byte", "bytes"))
	row("revision", "%d", l.Revision)
	_ = tw.Flush() // as all output to a terminal
	if body {
		fmt.Fprintf(w, "\n%s\n", strings.TrimRight(visibleLines(string(l.Payload)), "\n"))
	}
	at := fmt.Sprintf("%s %d --revision %d --why '...'", again, l.ID, l.Revision)
	means := "It has failed, and is sent again when its time comes. If it has a group, the others of it wait."
	next := []option{{"let its group go on without it; it is a dead letter then", "retrysafe outbox skip" + at}}
	if dead {
		means = "It was given up. Nothing takes it away but you. If its receiver has forgotten its key by now and it had happened, sending it again makes a second effect: find out first."
		next = []option{
			{"send it again, behind all others of its group, under the key that it had", "retrysafe outbox redrive" + at},
			{"it is not wanted any more, or has happened: forget it for good", "retrysafe outbox drop" + at},
		}
	}
	fmt.Fprintf(w, "\n%s\n\nWhat you may do:\n", wrapped(means, 88))
	for _, o := range next {
		fmt.Fprintf(w, "\n  # %s\n  %s\n", o.when, o.command)
	}
}
