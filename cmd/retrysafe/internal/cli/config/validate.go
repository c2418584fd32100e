package config

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/configfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/store/sealed"
)

func validateCommand(env *command.Env) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:        "validate FILE",
		SuggestFor: []string{"check", "test", "verify", "lint"},
		Short:      "Check a gateway's configuration, without starting one",
		Long: `Checks a configuration file. It names the line and the field of every error, and of
every setting that works but may not be intended, as a start does. If the store can be
read within two seconds, it also warns of what the store can lose, and of settings that
are not those that the keys were stored under: a gateway would not start with them, and a
reload would be refused. A note says if there is no store yet. The store is not changed,
and none is created. The exit code is 2 if there are errors; with --strict it is 1 if
there are warnings, and notes do not count.

It prints for each route whether its requests are guarded, and below it the same for
requests that its pattern nearly matches: with a slash more or less at the end, below its
path, in other letters, in other methods.`,
		Example: `  retrysafe config validate gateway.yaml
  # in a pipeline: fail on warnings
  retrysafe config validate --strict gateway.yaml`,
		Args: command.Args("FILE"),
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail on warnings")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		c, err := configfile.Load(env, args[0])
		if err != nil {
			return err
		}
		var keys *sealed.Keyring
		if c.Encryption.KeysFile != "" {
			if keys, err = sealed.LoadKeyring(c.Encryption.KeysFile); err != nil {
				return exit.Usagef("%s: encryption.keys_file: %v", args[0], err)
			}
		}
		ofStore, note := lookAtStore(cmd.Context(), c, keys)
		warnings := append(gateway.Warnings(c), ofStore...)
		for _, w := range warnings {
			fmt.Fprintln(env.Err, "warning: "+printable.Text(w))
		}
		if note != "" {
			fmt.Fprintln(env.Err, "note: "+printable.Text(note))
		}
		if len(warnings) > 0 && strict {
			return exit.Silent(exit.No)
		}
		fmt.Fprintf(env.Out, "%s: good, %s besides the defaults\n", printable.Text(args[0]), terminal.Count(len(c.Routes), "route", "routes"))
		return printRoutes(env.Out, c)
	})
	return cmd
}
