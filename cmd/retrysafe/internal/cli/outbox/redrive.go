package outbox

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
)

func redriveCommand(env *command.Env, f *boxFlags) *cobra.Command {
	o := &operation{verb: "redrive letter", dead: true}
	cmd := o.complete(env, f, &cobra.Command{
		Use:   "redrive ID",
		Short: "Send a dead letter again",
		Long: `Sends a dead letter again, behind all others of its group and with the key that it
had. If it is older than the time for which its receiver remembers keys (--window), that
is refused: if it had happened, it would happen a second time. --force says that you
have made sure that it has not.

` + action.Help,
		Example: `  retrysafe outbox redrive 17 --why "the receiver is up again"
  # it is older than the receiver's memory, and you have made sure that it did not arrive
  retrysafe outbox redrive 17 --force --why "not in the receiver's log of May 3rd"`,
	})
	cmd.Flags().BoolVar(&o.force, "force", false, "even if its receiver may have forgotten its key")
	return cmd
}

func skipCommand(env *command.Env, f *boxFlags) *cobra.Command {
	o := &operation{
		verb: "skip message", consequence: "It is not sent any more, and its group continues without it. It becomes a dead letter.",
	}
	return o.complete(env, f, &cobra.Command{
		Use:   "skip ID",
		Short: "Bury a message that fails, so that its group continues",
		Long: `Buries a message whose delivery has failed and would be tried again, so that its group
continues without it. It becomes a dead letter like any other: nothing is lost.

` + action.Help,
		Example: `  retrysafe outbox skip 17 --why "the receiver refuses this one, and 300 wait behind it"`,
	})
}

func dropCommand(env *command.Env, f *boxFlags) *cobra.Command {
	o := &operation{
		verb: "drop letter", consequence: "It is forgotten for good: only the audit remains.", dead: true,
	}
	return o.complete(env, f, &cobra.Command{
		Use:   "drop ID",
		Short: "Forget a dead letter for good",
		Long: `Forgets a dead letter for good. Only the audit remains.

` + action.Help,
		Example: `  retrysafe outbox drop 17 --why "delivered by hand, receipt 42"`,
	})
}
