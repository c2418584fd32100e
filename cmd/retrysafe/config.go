package main

import "github.com/spf13/cobra"

func (p *program) config() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "config",
		Short: "Check and print a gateway's configuration, and make encryption keys",
		Long: `A gateway is configured by one YAML file, which docs/configuration.md explains. These
commands check it before a gateway does, and print what it comes to.`,
		Example: `  retrysafe config validate gateway.yaml
  retrysafe config print gateway.yaml
  retrysafe config genkeys keys.json`,
	})
	cmd.AddCommand(p.configValidate(), p.configPrint(), p.configGenkeys())
	return cmd
}
