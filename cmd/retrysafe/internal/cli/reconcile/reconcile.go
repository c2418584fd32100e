// Package reconcile is the command group "retrysafe reconcile": it settles unknown
// outcomes, and compares ledgers.
package reconcile

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
)

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "reconcile",
		Short: "Settle unknown outcomes, and compare ledgers",
		Long: `An outcome is unknown if an operation may have happened and there is no proof either
way. "run" asks a resolver that can find out, and settles it. "ledger" compares your list
of payments with the other side's, and finds whatever else went wrong.`,
		Example: `  retrysafe reconcile run --store sqlite:retrysafe.db --resolver-url https://payments.internal/resolve
  retrysafe reconcile ledger ours.csv theirs.csv --compare amount,currency`,
	})
	cmd.AddCommand(runCommand(env), ledgerCommand(env))
	return cmd
}
