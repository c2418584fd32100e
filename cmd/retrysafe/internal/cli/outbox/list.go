package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
)

// A listing is what the flags of outbox list ask for.
type listing struct {
	failing, long, all bool
	after              int64
	limit              int
	format             *command.Choice
}

func listCommand(env *command.Env, f *boxFlags) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, or messages that fail",
		Long: `Lists dead letters, the oldest first. With --failing it lists messages whose delivery
has failed and will be tried again; one that has a group delays the others of it.`,
		Example: `  retrysafe outbox list
  # messages that fail, and are still being tried
  retrysafe outbox list --failing
  # for a script
  retrysafe outbox list --all --format json`,
		Args: command.Args(),
		RunE: command.Run(func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context(), env, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&l.failing, "failing", false, "messages that fail and are still tried, instead of dead letters")
	flags.Int64Var(&l.after, "after", 0, "continue a list after this ID")
	flags.IntVar(&l.limit, "limit", 100, "how many at most")
	flags.BoolVar(&l.all, "all", false, "all of them, without a limit")
	flags.BoolVar(&l.long, "long", false, "exact times, and more columns")
	l.format = command.NewFormat(cmd, "table", "json", "csv")
	return cmd
}

func (l *listing) run(ctx context.Context, env *command.Env, f *boxFlags) error {
	if l.limit < 1 {
		return exit.Usagef("--limit %d is not above zero", l.limit).Hintf("--all lists everything")
	}
	s, err := f.open(ctx, env)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	columns := []string{"ID", "TOPIC", "GROUP", "TRIES", "AGE", "WHY"}
	if l.long {
		columns = append(columns, "ENQUEUED", "DIED", "KEY", "SETTLES", "PROVIDER REF", "REVISION")
	}
	t := terminal.NewTable(env.Out, l.format.Is("csv"), columns...)
	const page = 500
	for found, after := 0, l.after; ; {
		ask := page
		if !l.all {
			ask = min(page, l.limit-found+1) // one more, to know whether there is one
		}
		some, err := s.Messages(ctx, l.failing, after, ask)
		if errors.Is(err, errors.ErrUnsupported) {
			return exit.Errorf(exit.No, "this store cannot list messages that fail")
		}
		if err != nil {
			return s.StoreError(err)
		}
		for i := range some {
			if !l.all && found == l.limit {
				fmt.Fprintf(env.Err, "there is more: the same with --after %d\n", after)
				return t.Flush()
			}
			after = some[i].ID
			found++
			if err := l.add(env, t, &some[i]); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if len(some) < ask {
			if found == 0 {
				fmt.Fprintln(env.Err, "none")
			}
			return nil
		}
	}
}

// add adds one message to the output.
func (l *listing) add(env *command.Env, t *terminal.Table, m *adminwire.MessageView) error {
	if l.format.Is("json") {
		return terminal.WriteJSON(env.Out, newMessageJSON(m, !l.failing, false))
	}
	why, width := m.Why, 60
	if m.Err != nil {
		why = m.Err.Error()
	}
	if l.long {
		width = 500
	}
	cells := []string{
		strconv.FormatInt(m.ID, 10), terminal.OrDash(printable.Text(m.Topic)), terminal.OrDash(printable.Text(m.Group)), strconv.Itoa(m.Tries),
		terminal.Duration(m.Age), terminal.OrDash(terminal.Clip(printable.Text(why), width)),
	}
	if l.long {
		settles := "-"
		if m.Settles != nil {
			settles = keyref.Text(m.Settles.Ref)
		}
		cells = append(cells, terminal.Exact(m.Enqueued), terminal.Exact(m.Died), terminal.OrDash(printable.Text(m.Key)), settles,
			terminal.OrDash(printable.Text(m.ProviderRef)), strconv.FormatInt(m.Revision, 10))
	}
	t.Add(cells...)
	return nil
}
