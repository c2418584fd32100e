package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysResolve(stores *storeFlags) *cobra.Command {
	return p.answering(stores, (*operator.Desk).Resolve, "resolve", "It happened: every retry gets this answer from now on, and it never changes.", &cobra.Command{
		Short: "State that an operation has happened, and what retries get",
		Long: `States that an operation whose outcome is unknown has happened. Every retry gets the
answer that you give, from now on and for the whole retention, so it has to be what
your API would have said: the client's program reads it.

Look it up at the other side first: by the key that was sent there, or by amount,
account and time. If the record says that it did not happen, because somebody had
released it, it becomes disputed instead: perhaps it has happened twice.

` + actHelp,
		Example: `  retrysafe keys resolve tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --status 201 --header 'Content-Type: application/json' --body '{"id":"ch_17","status":"paid"}' --provider-ref ch_17 --why "ch_17 is in the provider's dashboard"
  # in a script: at the revision that was seen, with the answer from a file
  retrysafe keys resolve tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --revision 1767225600000001 --status 201 --body-file answer.json --why "case 42" --by anna --yes`,
	})
}
