// Package migrate is the command group "retrysafe migrate": it creates and upgrades the
// tables of a store.
package migrate

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
)

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "migrate",
		Short: "Create and upgrade the tables of a store",
		Long: `The schema of a store is a list of numbered migrations. A program that opens a store
applies those that are missing, one program at a time. Use these commands to apply them
yourself, for example because your programs may not change the schema.

` + stores.Help,
		Example: `  retrysafe migrate status --store postgres://app@db/app
  retrysafe migrate up --store postgres://owner@db/app`,
	})
	target := stores.AddFlags(cmd)
	cmd.AddCommand(upCommand(env, target), statusCommand(env, target), printCommand(env, target))
	for _, sub := range cmd.Commands() {
		stores.RefuseAdmin(sub, "migrate works on the tables of the database itself")
	}
	return cmd
}
