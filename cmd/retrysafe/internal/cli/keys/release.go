package keys

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
)

func releaseCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return bulkCommand(env, target, "release",
		"You vouch for both: the other side does not know of it, and the process that ran it has ended.\nThe next request with this key runs it. If its effects are unprotected, nothing else prevents a second effect.",
		"You vouch for both, for all of them: the other side knows none of them, and the processes that ran them have ended.\nThe next requests with these keys run them. Where effects are unprotected, nothing else prevents second effects.",
		&cobra.Command{
			Short: "State that an operation has not happened and never will",
			Long: `States that an operation whose outcome is unknown has not happened, and will not: the
next request with its key runs it. Two things have to be true, and you vouch for both:

  1. The other side does not know of it.
  2. The process that ran it has ended, and nothing of it is still on its way: "not
     found" while the first attempt is merely slow is how charges happen twice.

` + bulkHelp + `

` + action.Help,
			Example: `  # after an outage: what would be released, and then all of it
  retrysafe keys release --operation 'POST /charges' --upstream-status 500 --dry-run
  retrysafe keys release --operation 'POST /charges' --upstream-status 500 --why "the provider has none of them; the service answered before it called"
  retrysafe keys release tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "the provider knows nothing of it, and node 3 is switched off"`,
		})
}

func redriveCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return bulkCommand(env, target, "redrive", "", "The resolvers are asked about all of them again, at once and from the first try.", &cobra.Command{
		Short: "Have resolvers asked again about an unknown outcome",
		Long: `Has the resolvers asked again about an unknown outcome, at once and from the first
try, even if it is dead. It changes nothing else, and does no harm.

` + bulkHelp + `

` + action.Help,
		Example: `  # all of them, fifty in a second, so that the provider is not overrun
  retrysafe keys redrive --state unknown --rate 50 --why "the provider's outage is over"
  retrysafe keys redrive tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "the provider's outage is over"`,
	})
}
