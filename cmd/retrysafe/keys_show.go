package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
)

func (p *program) keysShow(stores *storeFlags) *cobra.Command {
	var body, long bool
	cmd := &cobra.Command{
		Use:   "show SCOPE KEY",
		Short: "Show what is known of a key, what it means and what may be done",
		Long: `Shows all that is known of one key, says in words what its state means, and prints
the exact command for each thing that a person may do about it.

A scope or key with special characters is shown in double quotes and escaped, and may
be given so: '"a\tb"'.`,
		Example: `  retrysafe keys show tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324
  # with the body of the stored answer
  retrysafe keys show tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --body
  # for a script
  retrysafe keys show tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --format json`,
		Args: exactly("SCOPE", "KEY"),
	}
	cmd.Flags().BoolVar(&body, "body", false, "show the body of the stored answer too")
	cmd.Flags().BoolVar(&long, "long", false, "exact times")
	format := formats(cmd, "text", "json")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		d, err := stores.open(ctx, p)
		if err != nil {
			return err
		}
		defer d.close(ctx)
		r, err := d.Show(ctx, refOf(args))
		if err != nil && (!errors.Is(err, retrysafe.ErrUnreadable) || r.Revision == 0) {
			return d.noRecord(refOf(args), err)
		}
		if err != nil {
			r.Version = 0 // some of it is there, and none of it is to be believed
		}
		if format.value == "json" {
			return writeJSON(p.stdout, newRecordJSON(&r, false, body))
		}
		showRecord(p.stdout, &r, d.again, body, long)
		return nil
	})
	return cmd
}

// showRecord writes all that is known of a record, for people.
func showRecord(w io.Writer, r *retrysafe.Record, again string, body, long bool) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("scope", "%s", named(r.Scope))
	row("key", "%s", named(r.Key))
	row("hash", "%s (as logs name it)", retrysafe.HashKey(r.Key))
	row("operation", "%s", cmp.Or(visible(r.Operation), "-"))
	row("state", "%s", stateOf(r))
	row("attempt", "%d, effects %s, a lapsed attempt: %s", r.Attempt, r.Effects, r.Lapse)
	row("created", "%s", when(r.CreatedAt, r.ReadAt, long))
	row("changed", "%s", when(r.UpdatedAt, r.ReadAt, long))
	row("deadline", "%s (%s)", when(r.Deadline, r.ReadAt, long), deadlineMeans(r))
	row("revision", "%d", r.Revision)
	if r.ProviderRef != "" {
		row("provider ref", "%s", visible(r.ProviderRef))
	}
	if r.Reason != "" {
		row("reason", "%s", visible(r.Reason))
	}
	if len(r.Request) > 0 {
		row("request", "%s, stored for a worker", many(int64(len(r.Request)), "byte", "bytes"))
	}
	if !r.Checkpoint.IsZero() {
		row("checkpoint", "%s", stepsOf(r))
	}
	if r.Result != nil {
		row("answer", "%d, body of %s", r.Result.Status, many(int64(len(r.Result.Body)), "byte", "bytes"))
		for _, name := range slices.Sorted(maps.Keys(r.Result.Header)) {
			for _, value := range r.Result.Header[name] {
				row("", "%s: %s", visible(name), visible(value))
			}
		}
	}
	for i, n := range r.Inquiry.Notes {
		name := ""
		if i == 0 {
			name = "notes"
		}
		row(name, "%s, by %s, %s: %s", when(n.At, r.ReadAt, long), visible(n.By), n.State, visible(n.Text))
	}
	_ = tw.Flush() // as all output to a terminal
	if body && r.Result != nil {
		fmt.Fprintf(w, "\n%s\n", strings.TrimRight(visibleLines(string(r.Result.Body)), "\n"))
	}

	a := advise(r, again)
	fmt.Fprintf(w, "\n%s\n", wrapped(a.means, 88))
	if len(a.next) > 0 {
		fmt.Fprintln(w, "\nWhat you may do:")
	}
	for _, o := range a.next {
		fmt.Fprintf(w, "\n  # %s\n  %s\n", o.when, o.command)
	}
}

// deadlineMeans says what a deadline is for.
func deadlineMeans(r *retrysafe.Record) string {
	if r.State == retrysafe.StateUnknown && r.Inquiry.Dead {
		return "nobody is asked again"
	}
	switch r.State {
	case retrysafe.StateAccepted:
		return "then it is given up"
	case retrysafe.StateInProgress:
		return "of its lease"
	case retrysafe.StateUnknown:
		return "then resolvers are asked again"
	case retrysafe.StateExpired:
		return "then it is deleted"
	default:
		return "then it is forgotten"
	}
}

// stepsOf says how far an operation has come.
func stepsOf(r *retrysafe.Record) string {
	steps, err := r.Checkpoint.Steps()
	if err != nil || len(steps) == 0 {
		return fmt.Sprintf("after %s, %s", cmp.Or(visible(r.Checkpoint.Phase), "-"), many(int64(len(r.Checkpoint.Data)), "byte", "bytes"))
	}
	var parts []string
	for i := range steps {
		s := &steps[i]
		text := visible(s.Name)
		if s.Open {
			text += fmt.Sprintf(" (called %s, and nobody knows how that ended)", many(int64(s.Calls), "time", "times"))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", then ")
}

// wrapped breaks text into lines of at most so many characters.
func wrapped(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, w := range strings.Fields(text) {
		switch n := len([]rune(w)); {
		case i == 0:
			at = n
		case at+1+n > width:
			b.WriteByte('\n')
			at = n
		default:
			b.WriteByte(' ')
			at += 1 + n
		}
		b.WriteString(w)
	}
	return b.String()
}
