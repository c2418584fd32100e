package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) outboxDrop(f *boxFlags) *cobra.Command {
	return p.handling(f, letterVerb{
		name: "drop letter", will: "It is forgotten for good: the audit is what is left of it.", dead: true, do: (*operator.Letters).Drop,
	}, new(bool), &cobra.Command{
		Use:   "drop ID",
		Short: "Forget a dead letter for good",
		Long: `Forgets a dead letter for good. The audit is what is left of it.

` + actHelp,
		Example: `  retrysafe outbox drop 17 --why "delivered by hand, receipt 42"`,
	})
}
