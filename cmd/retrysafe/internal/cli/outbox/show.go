package outbox

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
)

func showCommand(env *command.Env, f *boxFlags) *cobra.Command {
	var body, long bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a message, and what you may do about it",
		Long: `Shows a dead letter, or a message that fails, and prints the exact command for each
thing that you may do about it. Of a message that was delivered it shows the receipt, if
the worker keeps receipts.`,
		Example: `  retrysafe outbox show 17
  # with its payload
  retrysafe outbox show 17 --body`,
		Args: command.Args("ID"),
	}
	cmd.Flags().BoolVar(&body, "body", false, "include the payload")
	cmd.Flags().BoolVar(&long, "long", false, "exact times")
	format := command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		id, err := parseID(args[0])
		if err != nil {
			return err
		}
		s, err := f.open(ctx, env)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		switch r, ok, err := s.receipt(ctx, id); {
		case err != nil:
			return err
		case ok:
			return writeReceipt(env, &r, format, long)
		}
		m, dead, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		if body {
			if m, err = s.Payload(ctx, m, "retrysafe outbox show --body"); err != nil {
				return s.StoreError(err)
			}
		}
		if format.Is("json") {
			return terminal.WriteJSON(env.Out, newMessageJSON(&m, dead, body))
		}
		writeMessage(env.Out, &m, dead, body, long)
		means, next := advise(&m, dead, s.Again())
		action.WriteOptions(env.Out, s.Person(), means, next)
		return nil
	})
	return cmd
}

// writeMessage writes everything about a message, for people.
func writeMessage(w io.Writer, m *adminwire.MessageView, dead, body, long bool) {
	now := m.Enqueued.Add(m.Age) // by the clock of the store
	d := terminal.NewDetails(w)
	d.Add("message", "%d", m.ID)
	d.Add("topic", "%s", terminal.OrDash(printable.Text(m.Topic)))
	d.Add("group", "%s", terminal.OrDash(printable.Text(m.Group)))
	d.Add("key", "%s", terminal.OrDash(printable.Text(m.Key)))
	d.Add("enqueued", "%s", terminal.Time(m.Enqueued, now, long))
	if dead {
		d.Add("died", "%s", terminal.Time(m.Died, now, long))
	}
	d.Add("sent", "%s", terminal.Count(m.Tries, "time", "times"))
	d.Add("why", "%s", terminal.OrDash(printable.Text(m.Why)))
	if m.Err != nil {
		d.Add("unreadable", "%s", printable.Text(m.Err.Error()))
	}
	if m.ProviderRef != "" {
		d.Add("provider ref", "%s", printable.Text(m.ProviderRef))
	}
	if m.Settles != nil {
		d.Add("settles", "%s", keyref.Text(m.Settles.Ref))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		d.Add("header", "%s: %s", printable.Text(name), printable.Text(m.Header[name]))
	}
	d.Add("payload", "%s", terminal.Count(m.PayloadSize(), "byte", "bytes"))
	d.Add("revision", "%d", m.Revision)
	_ = d.Flush() // an error of standard output is not reported
	if body {
		fmt.Fprintf(w, "\n%s\n", strings.TrimRight(printable.Lines(string(m.Payload)), "\n"))
	}
}

// advise explains a message, and returns what an operator may do. Repeat are the flags that
// name the store.
func advise(m *adminwire.MessageView, dead bool, repeat string) (means string, next []terminal.Option) {
	at := fmt.Sprintf("%s %d --revision %d --why '...'", repeat, m.ID, m.Revision)
	means = "Its delivery has failed, and is tried again later. If it has a group, the others of it wait."
	next = []terminal.Option{{When: "let its group continue without it; it becomes a dead letter", Command: "retrysafe outbox skip" + at}}
	if dead {
		means = "It was given up, and stays until you decide. If its receiver has forgotten its key by now and it had happened, sending it again makes a second effect: find out first."
		next = []terminal.Option{
			{When: "send it again, behind all others of its group, with the key that it had", Command: "retrysafe outbox redrive" + at},
			{When: "it is not wanted any more, or has happened: forget it for good", Command: "retrysafe outbox drop" + at},
		}
	}
	return means, next
}
