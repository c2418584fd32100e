// Package config is the command group "retrysafe config": it checks and prints the
// configuration of a gateway, and creates encryption keys.
package config

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
)

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "config",
		Short: "Check and print a gateway's configuration, and create encryption keys",
		Long: `A gateway is configured by one YAML file, which docs/configuration.md explains. These
commands check it before a gateway does, and print the complete configuration.`,
		Example: `  retrysafe config validate gateway.yaml
  retrysafe config print gateway.yaml
  retrysafe config genkeys keys.json`,
	})
	cmd.AddCommand(validateCommand(env), printCommand(env), genkeysCommand(env))
	return cmd
}
