package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// group makes cmd one that only has others below it.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknown(cmd, args[0])
	}
	return cmd
}

// unknown says that there is no such command, and which there is instead.
func unknown(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.CommandPath(), like[0])
	}
	return misused("there is no command %q in %s", name, cmd.CommandPath()).hinted("%s", hint)
}

// exactly is for commands that take these arguments and no others.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return fmt.Errorf("%q is one argument too many", args[len(names)])
		}
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing", names[len(args)])
		}
		return nil
	}
}
