package keys

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// selectFlags are the flags that select records by what they are.
type selectFlags struct {
	states                    []string
	operation, reason, tenant string
	status                    int
	since, until              command.Time
}

// upstreamStatusFlag is the name of the flag for the status of the service: --status is
// that of an answer.
const upstreamStatusFlag = "upstream-status"

// selecting is what the help of commands says about the flags.
const selecting = `--operation and --reason are compared as a whole; an asterisk in them stands for any
text. --upstream-status is the status of your service when the attempt failed.
--since and --until go by when a key was first sent.`

// addSelectFlags adds the flags, except those that exist already.
func addSelectFlags(cmd *cobra.Command) *selectFlags {
	f := new(selectFlags)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.states, "state", nil, "only keys in this state; may be repeated")
	flags.StringVar(&f.operation, "operation", "", "only keys of this operation, as 'POST /charges'; * stands for any text")
	flags.StringVar(&f.reason, "reason", "", "only keys with this reason, as keys groups shows it; * stands for any text")
	f.addStatus(cmd)
	flags.StringVar(&f.tenant, "tenant", "", "only keys of this tenant")
	flags.Var(&f.since, "since", "only keys that were first sent since a time, or since so long ago")
	flags.Var(&f.until, "until", "only keys that were first sent before a time, or longer ago")
	command.Complete(cmd, "state", stateNames()...)
	return f
}

// addStatus adds the flag for the status of the service. --status, its former name, still
// means it in commands that store no answer.
func (f *selectFlags) addStatus(cmd *cobra.Command) {
	flags := cmd.Flags()
	if flags.Lookup("status") == nil {
		flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			if name == "status" {
				name = upstreamStatusFlag
			}
			return pflag.NormalizedName(name)
		})
	}
	flags.IntVar(&f.status, upstreamStatusFlag, 0, "only keys whose attempt failed with this status of your service")
}

// given reports whether one of the flags is on the command line.
func (f *selectFlags) given(cmd *cobra.Command) bool {
	for _, name := range []string{"state", "operation", "reason", upstreamStatusFlag, "tenant", "since", "until"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// filter checks the flags and returns what they select.
func (f *selectFlags) filter() (operator.Filter, error) {
	out := operator.Filter{
		Operation: f.operation, Reason: f.reason, Status: f.status, Tenant: printable.ParseName(f.tenant),
		Since: f.since.Truncate(time.Microsecond), Until: f.until.Truncate(time.Microsecond), // as commands print times
	}
	for _, name := range f.states {
		state, err := parseState(name)
		if err != nil {
			return out, err
		}
		out.States = append(out.States, state)
	}
	if f.status != 0 && (f.status < 100 || f.status > 599) {
		return out, exit.Usagef("--%s %d is not a status of HTTP", upstreamStatusFlag, f.status).Hintf("it is the status that your service answered with, for example --%s 500", upstreamStatusFlag)
	}
	if !out.Since.IsZero() && !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, exit.Usagef("--since %s is not before --until %s", terminal.Exact(out.Since), terminal.Exact(out.Until))
	}
	return out, nil
}

func parseState(name string) (retrysafe.State, error) {
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, exit.Usagef("there is no state %q", name).Hintf("they are %s", strings.Join(stateNames(), ", "))
}

// selectWords returns the words of a command line that select what a filter does. Text
// that is not printable is an asterisk there.
func selectWords(f *operator.Filter) string {
	var b strings.Builder
	add := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, " --%s %s", name, terminal.ShellWord(value))
		}
	}
	for _, s := range f.States {
		add("state", s.String())
	}
	add("operation", pattern(f.Operation))
	add("reason", pattern(f.Reason))
	if f.Status != 0 {
		add(upstreamStatusFlag, fmt.Sprint(f.Status))
	}
	if f.Tenant != "" {
		add("tenant", printable.Name(f.Tenant))
	}
	if !f.Since.IsZero() {
		add("since", terminal.Exact(f.Since))
	}
	if !f.Until.IsZero() {
		add("until", terminal.Exact(f.Until))
	}
	return b.String()
}

// pattern returns text as a pattern that matches it and is printable.
func pattern(text string) string {
	var b strings.Builder
	for _, r := range text {
		if one := string(r); printable.Text(one) == one {
			b.WriteRune(r)
		} else {
			b.WriteByte('*')
		}
	}
	return b.String()
}

func stateNames() (names []string) {
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		names = append(names, s.String())
	}
	return names
}
