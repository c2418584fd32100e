// Package cli is the command line of retrysafe: the root command, and the process around
// it.
//
// Each group of commands is a package below this one. Its path is what the user types:
// cli/keys is "retrysafe keys", cli/outbox is "retrysafe outbox". Some groups share their
// name with the package that they drive. That is no conflict: only this package imports
// groups, and inside of a group the name refers to the package that it drives. Groups do
// not import each other. What several of them need has a package of its own: exit,
// command, stores, action, configfile, keyref, build.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/bench"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/demo"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/journal"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keys"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/migrate"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/outbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/reconcile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/verify"
)

// Root returns the root command, with all others below it.
func Root(env *command.Env) *cobra.Command {
	root := command.Group(&cobra.Command{
		Use:   "retrysafe",
		Short: "Make any POST retry-safe",
		Long: `Make any POST retry-safe: the first attempt runs, every retry gets its answer, and
an outcome that cannot be known is set aside, never guessed.

` + exit.Help + `

A store is given as a URL:
  sqlite:FILE                               one file, durable, one machine
  postgres://user:password@host/database    any number of machines; ?schema=NAME
  mysql://user:password@host/database       any number of machines; MySQL and MariaDB
  dynamodb://REGION/TABLE                   any number of machines; Amazon DynamoDB
  redis://user:password@host                any number of machines; best effort (class D)
  memory:                                   gone with the process`,
		Example: `  # see it work: a payment API, and three lines to try on it
  retrysafe demo
  # put it before a service of yours, in any language
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant header:X-Tenant-Id --store sqlite:retrysafe.db
  # outcomes that need a person
  retrysafe keys groups --store sqlite:retrysafe.db`,
		Version:       build.Current().String(),
		SilenceErrors: true, // Run reports them
		SilenceUsage:  true,
	})
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run it:"},
		&cobra.Group{ID: "operate", Title: "Operate it:"},
		&cobra.Group{ID: "trust", Title: "See that it holds:"},
		&cobra.Group{ID: "set up", Title: "Set it up:"},
	)
	for id, commands := range map[string][]*cobra.Command{
		"run":     {demo.Command(env), gateway.Command(env)},
		"operate": {keys.Command(env), outbox.Command(env), reconcile.Command(env), journal.Command(env)},
		"trust":   {proveCommand(env), verify.Command(env), bench.Command(env)},
		"set up":  {config.Command(env), migrate.Command(env), versionCommand(env)},
	} {
		for _, cmd := range commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetHelpCommandGroupID("set up")
	root.SetCompletionCommandGroupID("set up")
	addCobraCommands(root)
	return root
}

// addCobraCommands adds the commands that cobra provides, and gives them examples as all
// others have.
func addCobraCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Example = "  # for this session of bash\n  source <(retrysafe completion bash)"
			for _, shell := range cmd.Commands() {
				shell.Example = "  retrysafe completion " + shell.Name()
			}
		case "help":
			cmd.Example = "  retrysafe help keys show"
		}
	}
}
