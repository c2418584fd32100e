package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.allowed, text) {
		return fmt.Errorf("it is one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = text
	return nil
}

// chooses adds a flag of a few words, the first of which is the default.
func chooses(cmd *cobra.Command, name, usage string, allowed ...string) *choice {
	c := &choice{value: allowed[0], allowed: allowed}
	cmd.Flags().Var(c, name, usage)
	complete(cmd, name, allowed...)
	return c
}

// complete lets the shell complete the values of a flag.
func complete(cmd *cobra.Command, name string, words ...string) {
	if cmd.Flags().Lookup(name) == nil {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there, and new
}

// formats adds the flag of what the output looks like.
func formats(cmd *cobra.Command, allowed ...string) *choice {
	return chooses(cmd, "format", "what the output looks like", allowed...)
}

// given reports whether a flag is on the command line.
func given(flags *pflag.FlagSet, name string) bool { return flags.Changed(name) }
