package main

import "github.com/spf13/cobra"

func (p *program) migrate() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "migrate",
		Short: "Make and upgrade the tables of a store",
		Long: `The tables of a store come in numbered steps. Programs that open a store make them by
themselves, one of many at a time; these commands are for those who would rather do it
themselves, or whose programs may not.

` + storeHelp,
		Example: `  retrysafe migrate status --store postgres://app@db/app
  retrysafe migrate up --store postgres://owner@db/app`,
	})
	stores := needsStore(cmd)
	cmd.AddCommand(p.migrateUp(stores), p.migrateStatus(stores), p.migratePrint(stores))
	return cmd
}
