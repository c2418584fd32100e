package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/store/sealed"
)

func (p *program) configValidate() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a gateway's configuration, without starting one",
		Long: `Checks a configuration file: all that can be known without connecting to anything. It
names the line and the field of everything that is wrong, and of what works but may not
be what was meant. The exit code is 2 if anything is wrong; with --strict also 1 if
there are warnings.`,
		Example: `  retrysafe config validate gateway.yaml
  # in a pipeline: warnings count too
  retrysafe config validate --strict gateway.yaml`,
		Args: exactly("FILE"),
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings count too")
	cmd.RunE = runs(func(_ *cobra.Command, args []string) error {
		c, err := p.loadConfig(args[0])
		if err != nil {
			return err
		}
		if c.Encryption.KeysFile != "" {
			if _, err := sealed.LoadKeyring(c.Encryption.KeysFile); err != nil {
				return misused("%s: encryption.keys_file: %v", args[0], err)
			}
		}
		warnings := c.Warnings()
		for _, w := range warnings {
			fmt.Fprintln(p.stderr, "warning: "+visible(w))
		}
		if len(warnings) > 0 && strict {
			return quietly(exitNo)
		}
		fmt.Fprintf(p.stdout, "%s: good, %s beside the defaults\n", visible(args[0]), many(int64(len(c.Routes)), "route", "routes"))
		return nil
	})
	return cmd
}
