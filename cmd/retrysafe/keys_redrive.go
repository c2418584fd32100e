package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysRedrive(stores *storeFlags) *cobra.Command {
	return p.acting(stores, (*operator.Desk).Redrive, false, "redrive", "", &cobra.Command{
		Short: "Let resolvers be asked again about an unknown outcome",
		Long: `Lets the resolvers be asked again about an unknown outcome, at once and from the
first try, also if it was given up. It changes nothing else, and does no harm.

` + actHelp,
		Example: `  retrysafe keys redrive tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "the provider's outage is over"`,
	})
}
