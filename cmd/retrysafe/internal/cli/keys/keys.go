// Package keys is the command group "retrysafe keys": it shows records and lets an
// operator change them.
package keys

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
)

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "keys",
		Short: "See which keys are stuck, and settle them",
		Long: `A key names an operation. It belongs to a scope: the tenant that sent it. These
commands show what is stored about keys, and let you settle outcomes that no program
can determine. A stuck key is not urgent for safety: requests with it are refused until
its outcome is known.

` + stores.Help + `

` + stores.AdminHelp,
		Example: `  # what needs a person, and the next command
  retrysafe keys groups --store sqlite:retrysafe.db
  # everything about one key, and what may be done about it
  retrysafe keys show --store sqlite:retrysafe.db tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324`,
	})
	target := stores.AddFlags(cmd)
	target.AddAdmin(cmd.PersistentFlags())
	cmd.AddCommand(
		groupsCommand(env, target), listCommand(env, target), showCommand(env, target), tailCommand(env, target),
		auditCommand(env, target), exportCommand(env, target), hashCommand(env),
		resolveCommand(env, target), declineCommand(env, target), releaseCommand(env, target), redriveCommand(env, target),
		forgetCommand(env, target), eraseCommand(env, target), quarantineCommand(env, target), copyCommand(env),
	)
	return cmd
}
