package keys

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

func groupsCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Show what needs a person, in groups, and the next command for each",
		Long: `Shows what no program has settled, the largest group first: unknown outcomes by
operation, reason and the status that your service answered with, and attempts whose
lease has ended without a sweeper. For each group it prints the commands that may come
next, ready to be copied. After an outage this is the first thing to look at.

` + selecting,
		Example: `  retrysafe keys groups
  # what became unknown tonight
  retrysafe keys groups --since 12h
  # for a script
  retrysafe keys groups -o json`,
		Args: command.Args(),
	}
	f := addSelectFlags(cmd)
	format := command.NewFormat(cmd, "table", "json", "csv")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		filter, err := f.filter()
		if err != nil {
			return err
		}
		s, err := open(ctx, env, target)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		groups, err := s.Groups(ctx, filter)
		if err != nil {
			return s.StoreError(err)
		}
		if len(groups) == 0 {
			fmt.Fprintln(env.Err, "nothing needs a person")
		}
		return writeGroups(env, format, groups, func(g *operator.Group) []terminal.Option {
			return offered(s.Person(), groupOptions(g, &filter, s.Again()))
		})
	})
	return cmd
}

// groupJSON is a group for scripts.
type groupJSON struct {
	State     string    `json:"state"`
	Disputed  bool      `json:"disputed,omitempty"`
	Operation string    `json:"operation"`
	Reason    string    `json:"reason,omitempty"`
	Status    int       `json:"status,omitempty"`
	Count     int       `json:"count"`
	Dead      int       `json:"dead"`
	OldestAt  time.Time `json:"oldest_at"`
	Age       int64     `json:"age_seconds"`
	Next      []string  `json:"next"`
}

func writeGroups(env *command.Env, format *command.Choice, groups []operator.Group, options func(*operator.Group) []terminal.Option) error {
	t := terminal.NewTable(env.Out, format.Is("csv"), "COUNT", "DEAD", "OLDEST", "STATE", "OPERATION", "STATUS", "REASON")
	for i := range groups {
		g := &groups[i]
		if format.Is("json") {
			j := groupJSON{State: g.State.String(), Disputed: g.Disputed, Operation: g.Operation, Reason: g.Reason, Status: g.Status,
				Count: g.Count, Dead: g.Dead, OldestAt: g.Oldest, Age: int64(g.Age / time.Second), Next: []string{}}
			for _, o := range options(g) {
				j.Next = append(j.Next, o.Command)
			}
			if err := terminal.WriteJSON(env.Out, j); err != nil {
				return err
			}
			continue
		}
		status := "-"
		if g.Status != 0 {
			status = strconv.Itoa(g.Status)
		}
		t.Add(strconv.Itoa(g.Count), strconv.Itoa(g.Dead), terminal.Duration(g.Age)+" ago", groupState(g),
			terminal.OrDash(printable.Text(g.Operation)), status, terminal.OrDash(terminal.Clip(printable.Text(g.Reason), 80)))
	}
	if err := t.Flush(); err != nil || !format.Is("table") {
		return err
	}
	for i := range groups {
		g := &groups[i]
		fmt.Fprintf(env.Out, "\n%s, %s%s:\n", terminal.Count(g.Count, "key", "keys"), terminal.OrDash(printable.Text(g.Operation)), groupReason(g))
		for _, o := range options(g) {
			fmt.Fprintf(env.Out, "  # %s\n  %s\n", o.When, o.Command)
		}
	}
	return nil
}

func groupReason(g *operator.Group) string {
	if g.Reason == "" {
		return ""
	}
	return ", " + terminal.Clip(printable.Text(g.Reason), 80)
}

func groupState(g *operator.Group) string {
	switch {
	case g.Disputed:
		return g.State.String() + ", disputed"
	case g.State == retrysafe.StateUnknown:
		return g.State.String()
	default:
		return g.State.String() + ", due"
	}
}

// offered returns the options of a person: those that only look, if the token may not act.
func offered(p adminwire.Person, options []terminal.Option) []terminal.Option {
	if p.Role != "read" {
		return options
	}
	return slices.DeleteFunc(options, func(o terminal.Option) bool { return !strings.HasPrefix(o.Command, "retrysafe keys list") })
}

// groupOptions returns what a person may do about a group. Repeat are the flags that name
// the store, f is what the groups were selected by.
func groupOptions(g *operator.Group, f *operator.Filter, repeat string) []terminal.Option {
	of := *f
	of.States, of.Operation, of.Reason, of.Status = []retrysafe.State{g.State}, g.Operation, g.Reason, g.Status
	words, look := selectWords(&of), "retrysafe keys list"+repeat
	switch {
	case g.Disputed:
		return []terminal.Option{{When: "evidence contradicts these records: settle them one by one", Command: look + words + " --dead"}}
	case g.State != retrysafe.StateUnknown:
		return []terminal.Option{
			{When: "no sweeper has settled them: one pass by hand", Command: "retrysafe reconcile run" + repeat + " --only sweep"},
			{When: "see them", Command: look + words + " --due"},
		}
	}
	return []terminal.Option{
		{When: "they did not happen and never will: the other side knows none of them, and what ran them has ended", Command: "retrysafe keys release" + repeat + words + " --why '...'"},
		{When: "they all happened, and one answer is right for all", Command: "retrysafe keys resolve" + repeat + words + happenedAnswer + " --why '...'"},
		{When: "resolvers or webhooks can tell: have them asked again", Command: "retrysafe keys redrive" + repeat + words + " --why '...'"},
		{When: "you do not know yet: see them", Command: look + words},
	}
}
