package main

import "github.com/spf13/cobra"

func (p *program) configPrint() *cobra.Command {
	var secrets bool
	cmd := &cobra.Command{
		Use:   "print FILE",
		Short: "Print what a configuration comes to, defaults included",
		Long: `Prints the whole configuration that a file comes to, as YAML: variables of the
environment filled in, defaults included and marked. Passwords and tokens are hidden
unless --secrets asks for them.`,
		Example: `  retrysafe config print gateway.yaml
  retrysafe config print gateway.yaml --secrets > complete.yaml`,
		Args: exactly("FILE"),
	}
	cmd.Flags().BoolVar(&secrets, "secrets", false, "show passwords and tokens")
	cmd.RunE = runs(func(_ *cobra.Command, args []string) error {
		c, err := p.loadConfig(args[0])
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
		_, err = p.stdout.Write(text)
		return err
	})
	return cmd
}
