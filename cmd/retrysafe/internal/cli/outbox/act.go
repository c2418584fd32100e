package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// An operation is one change that an operator may make to a message.
type operation struct {
	verb string
	// consequence is shown before the change is confirmed. Without one it is not
	// confirmed.
	consequence string
	// dead says whether it is for dead letters, or for messages that fail.
	dead bool
	// force is passed to the action.
	force bool
}

// complete completes a command that makes the change.
func (o *operation) complete(env *command.Env, f *boxFlags, cmd *cobra.Command) *cobra.Command {
	cmd.Args = command.Args("ID")
	flags := action.AddFlags(cmd, o.consequence != "")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), env, f, flags, args[0]) })
	return cmd
}

func (o *operation) run(ctx context.Context, env *command.Env, f *boxFlags, flags *action.Flags, arg string) error {
	id, err := parseID(arg)
	if err != nil {
		return err
	}
	flags.ByToken = f.AdminURL != ""
	if err := flags.Complete(env); err != nil {
		return err
	}
	s, err := f.open(ctx, env)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := flags.Adopt(s.Person()); err != nil {
		return err
	}
	m, dead, unfit := s.find(ctx, id)
	if unfit == nil && dead != o.dead {
		is := "not a dead letter: its delivery fails, and is still tried"
		if dead {
			is = "a dead letter already"
		}
		unfit = exit.Errorf(exit.No, "message %d is %s", id, is).Hintf("see: retrysafe outbox show%s %d", s.Again(), id)
	}
	if unfit != nil && flags.Revision == 0 { // with a revision it may repeat an action whose message is gone
		return unfit
	}
	if flags.Revision == 0 {
		flags.Revision = m.Revision
	}
	if flags.Ask && !flags.Yes {
		if err := env.Confirm(ctx, o.question(&m.DeadLetter, id, flags.Revision)); err != nil {
			return err
		}
	}
	a := operator.DeadLetterAction{ID: flags.ID, By: flags.By, Why: flags.Why, Letter: id, Revision: flags.Revision, Force: o.force}
	if a.ID == "" {
		a.ID = action.ID(o.verb, a.By, a.Why, arg, strconv.FormatInt(a.Revision, 10), strconv.FormatBool(a.Force))
	}
	e, err := s.ActOnMessage(ctx, o.verb, a)
	if unfit != nil && errors.Is(err, retrysafe.ErrNotFound) { // no action is repeated
		return unfit
	}
	on := action.Target{Name: fmt.Sprintf("message %d", id), ID: a.ID, Show: fmt.Sprintf("retrysafe outbox show%s %d", s.Again(), id)}
	return action.Report(env, flags, on, e, err)
}

// question returns the message that is about to be changed, and the consequence.
func (o *operation) question(m *outbox.DeadLetter, id, revision int64) string {
	return fmt.Sprintf("message %d, %s\n  sent %s, last: %s\n  revision %d\n%s",
		id, printable.Text(m.Topic), terminal.Count(m.Tries, "time", "times"), printable.Text(m.Why), revision, o.consequence)
}
