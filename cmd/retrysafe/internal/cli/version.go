package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func versionCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long:  `Prints the version of this program, its commit, the version of Go and the platform.`,
		Example: `  retrysafe version
  retrysafe version --format json`,
		Args: command.Args(),
	}
	format := command.NewFormat(cmd, "text", "json")
	cmd.RunE = command.Run(func(*cobra.Command, []string) error {
		b := build.Current()
		if format.Is("json") {
			return terminal.WriteJSON(env.Out, b)
		}
		_, err := fmt.Fprintln(env.Out, b)
		return err
	})
	return cmd
}
