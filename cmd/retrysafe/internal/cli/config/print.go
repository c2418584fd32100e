package config

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/configfile"
)

func printCommand(env *command.Env) *cobra.Command {
	var secrets bool
	cmd := &cobra.Command{
		Use:   "print FILE",
		Short: "Print the complete configuration, defaults included",
		Long: `Prints the complete configuration that a file describes, as YAML: variables of the
environment are filled in, defaults are included and marked. Passwords and tokens are
hidden unless --secrets is given.`,
		Example: `  retrysafe config print gateway.yaml
  retrysafe config print gateway.yaml --secrets > complete.yaml`,
		Args: command.Args("FILE"),
	}
	cmd.Flags().BoolVar(&secrets, "secrets", false, "show passwords and tokens")
	cmd.RunE = command.Run(func(_ *cobra.Command, args []string) error {
		c, err := configfile.Load(env, args[0])
		if err != nil {
			return err
		}
		show := c.Print
		if secrets {
			show = c.PrintSecrets
		}
		text, err := show()
		if err != nil {
			return err
		}
		_, err = env.Out.Write(text)
		return err
	})
	return cmd
}
