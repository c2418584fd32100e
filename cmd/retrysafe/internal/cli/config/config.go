// Package config is the command group "retrysafe config": it checks and prints the
// configuration of a gateway, and creates encryption keys.
package config

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
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
	cmd.AddCommand(takesFile(validateCommand(env)), takesFile(printCommand(env)), genkeysCommand(env))
	return cmd
}

// takesFile makes a command that names a configuration by its argument say so to a user
// that gives it by a flag, as other commands want it.
func takesFile(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown flag: --config") {
			return exit.Usagef("%v", err).Hintf("the file is an argument here: %s FILE", cmd.CommandPath())
		}
		return err
	})
	return cmd
}
