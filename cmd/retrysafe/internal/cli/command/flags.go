package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A Choice is a flag whose value is one of a few words.
type Choice struct {
	value   string
	allowed []string
}

// NewChoice adds a flag to cmd. The first of the allowed words is the default.
func NewChoice(cmd *cobra.Command, name, usage string, allowed ...string) *Choice {
	return newChoice(cmd, name, "", usage, allowed)
}

// NewFormat adds the flag --format, or -o, which selects the format of the output.
func NewFormat(cmd *cobra.Command, allowed ...string) *Choice {
	return newChoice(cmd, "format", "o", "format of the output", allowed)
}

func newChoice(cmd *cobra.Command, name, letter, usage string, allowed []string) *Choice {
	c := &Choice{value: allowed[0], allowed: allowed}
	cmd.Flags().VarP(c, name, letter, usage)
	Complete(cmd, name, allowed...)
	return c
}

// Is reports whether word was chosen.
func (c *Choice) Is(word string) bool { return c.value == word }

// String implements pflag.Value.
func (c *Choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *Choice) Type() string { return strings.Join(c.allowed, "|") }

// Set implements pflag.Value.
func (c *Choice) Set(text string) error {
	if !slices.Contains(c.allowed, text) {
		return fmt.Errorf("it is one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = text
	return nil
}

// Complete makes the shell complete the values of a flag.
func Complete(cmd *cobra.Command, name string, words ...string) {
	if cmd.Flags().Lookup(name) == nil {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag exists and has none yet
}

// A Time is a flag for a point in time: given as such, or as how long ago it was.
type Time struct{ time.Time }

// String implements pflag.Value.
func (t *Time) String() string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// Type implements pflag.Value.
func (*Time) Type() string { return "time" }

// Set implements pflag.Value.
func (t *Time) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		t.Time = time.Now().Add(-d)
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if parsed, err := time.Parse(layout, text); err == nil {
			t.Time = parsed
			return nil
		}
	}
	return fmt.Errorf("%q is neither a time, as 2026-03-01T03:00:00Z, nor how long ago it was, as 12h", text)
}
