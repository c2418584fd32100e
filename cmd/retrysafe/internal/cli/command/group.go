package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
)

// Group makes cmd a command that only has others below it.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknown(cmd, args[0])
	}
	return cmd
}

// unknown reports a command that does not exist, and suggests one that does.
func unknown(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.CommandPath(), like[0])
	}
	return exit.Usagef("there is no command %q in %s", name, cmd.CommandPath()).Hintf("%s", hint)
}

// Args is for commands that take exactly these arguments.
func Args(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return fmt.Errorf("%q is one argument too many", args[len(names)])
		}
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing", names[len(args)])
		}
		return nil
	}
}

// Run returns the work of a command for [cobra.Command]. Every error that it returns
// has an exit code.
func Run(do func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return exit.Wrap(do(cmd, args)) }
}
