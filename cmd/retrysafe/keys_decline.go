package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysDecline(stores *storeFlags) *cobra.Command {
	return p.answering(stores, (*operator.Desk).Decline, "decline", "It was refused for good: every retry gets this answer from now on, and it never changes.", &cobra.Command{
		Short: "State that an operation was refused for good, and what retries get",
		Long: `States that an operation whose outcome is unknown was refused for good: the other
side knows of it, and has declined. Every retry gets the answer that you give.

` + actHelp,
		Example: `  retrysafe keys decline tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --status 402 --header 'Content-Type: application/json' --body '{"error":"declined"}' --why "the provider's dashboard says declined"`,
	})
}
