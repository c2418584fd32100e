package main

import "github.com/spf13/cobra"

func (p *program) reconcile() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "reconcile",
		Short: "Find out what became of unknown outcomes, and compare ledgers",
		Long: `An outcome is unknown when an operation may have happened and nobody can prove either.
"run" asks somebody who knows, and settles it. "ledger" compares what we have with what
the other side has, and finds whatever else went wrong.`,
		Example: `  retrysafe reconcile run --store sqlite:retrysafe.db --resolver-url https://payments.internal/resolve
  retrysafe reconcile ledger ours.csv theirs.csv --compare amount,currency`,
	})
	cmd.AddCommand(p.reconcileRun(), p.reconcileLedger())
	return cmd
}
