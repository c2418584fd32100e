package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) outboxSkip(f *boxFlags) *cobra.Command {
	return p.handling(f, letterVerb{
		name: "skip message", will: "It is not sent any more, and its group goes on without it. It is a dead letter then.", do: (*operator.Letters).Skip,
	}, new(bool), &cobra.Command{
		Use:   "skip ID",
		Short: "Bury a message that fails, so that its group goes on",
		Long: `Buries a message that has failed and waits to be sent again, so that its group goes on
without it. It is a dead letter then like any other: nothing is lost.

` + actHelp,
		Example: `  retrysafe outbox skip 17 --why "the receiver refuses this one, and 300 wait behind it"`,
	})
}
