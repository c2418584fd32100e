package keys

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/operator"
)

func releaseCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return simpleCommand(env, target, (*operator.Service).Release, "release",
		"You vouch for both: the other side does not know of it, and the process that ran it has ended.\nThe next request with this key runs it. If its effects are unprotected, nothing else prevents a second effect.",
		&cobra.Command{
			Short: "State that an operation has not happened and never will",
			Long: `States that an operation whose outcome is unknown has not happened, and will not: the
next request with its key runs it. Two things have to be true, and you vouch for both:

  1. The other side does not know of it.
  2. The process that ran it has ended, and nothing of it is still on its way: "not
     found" while the first attempt is merely slow is how charges happen twice.

` + action.Help,
			Example: `  retrysafe keys release tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "the provider knows nothing of it, and node 3 is switched off"`,
		})
}

func redriveCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return simpleCommand(env, target, (*operator.Service).Redrive, "redrive", "", &cobra.Command{
		Short: "Have resolvers asked again about an unknown outcome",
		Long: `Has the resolvers asked again about an unknown outcome, at once and from the first
try, even if it is dead. It changes nothing else, and does no harm.

` + action.Help,
		Example: `  retrysafe keys redrive tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "the provider's outage is over"`,
	})
}
