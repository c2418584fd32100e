package keys

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

func hashCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "hash KEY",
		Short: "Print the hash that logs show for a key",
		Long: `Logs, metrics and pages never contain a key, because readers could use it. They
contain its hash. This command prints the hash of a key, and needs no store. The other
way round, keys list --key-hash finds the key.`,
		Example: `  retrysafe keys hash 8e03978e-40d5-43dd-bc93-6894a57f9324`,
		Args:    command.Args("KEY"),
		RunE: command.Run(func(_ *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(env.Out, retrysafe.HashKey(printable.ParseName(args[0])))
			return err
		}),
	}
}
