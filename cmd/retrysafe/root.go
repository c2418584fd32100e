package main

import "github.com/spf13/cobra"

func (p *program) root() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "retrysafe",
		Short: "Make any POST retry-safe",
		Long: `Make any POST retry-safe: the first attempt runs, every retry gets its answer, and
what nobody can know is set aside, never guessed.

` + exitCodes + `

Wherever a store is asked for:
  sqlite:FILE                               one file, durable, one machine
  postgres://user:password@host/database    any number of machines; ?schema=NAME
  memory:                                   gone with the process`,
		Example: `  # see it work: a payment API, and three lines to try on it
  retrysafe demo
  # put it before a service of yours, in any language
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant header:X-Tenant-Id --store sqlite:retrysafe.db
  # what needs a person
  retrysafe keys list --store sqlite:retrysafe.db --dead`,
		SilenceErrors: true, // run says it, in one line
		SilenceUsage:  true,
	})
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run it:"},
		&cobra.Group{ID: "operate", Title: "Operate it:"},
		&cobra.Group{ID: "trust", Title: "See that it holds:"},
		&cobra.Group{ID: "set up", Title: "Set it up:"},
	)
	for id, commands := range map[string][]*cobra.Command{
		"run":     {p.demo(), p.gateway()},
		"operate": {p.keys(), p.outbox(), p.reconcile()},
		"trust":   {p.prove()},
		"set up":  {p.config(), p.migrate(), p.version()},
	} {
		for _, cmd := range commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetHelpCommandGroupID("set up")
	root.SetCompletionCommandGroupID("set up")
	completion(root)
	return root
}

// completion lets cobra add its commands, and gives them examples as the others
// have.
func completion(root *cobra.Command) {
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
