package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// every returns all commands, each after the one that it belongs to.
func every(root *cobra.Command) (all []*cobra.Command) {
	all = append(all, root)
	for _, cmd := range root.Commands() {
		all = append(all, every(cmd)...)
	}
	return all
}

func TestEveryCommandTeaches(t *testing.T) {
	t.Parallel()
	for _, cmd := range every(cli.Root(clitest.NewEnv())) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: it needs a short text, a long one and examples", cmd.CommandPath())
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short text is no sentence", cmd.CommandPath())
		}
		if strings.HasPrefix(cmd.CommandPath(), "retrysafe completion") {
			continue // cobra's own words
		}
		for line := range strings.Lines(cmd.Long) {
			if len([]rune(strings.TrimRight(line, "\n"))) > 92 {
				t.Errorf("%s: a line of the long text is too long for a terminal: %s", cmd.CommandPath(), line)
			}
		}
	}
}

// Each line of an example is parsed as the command line that it is: its command is
// there, its flags are, and its arguments are as many as they should be.
func TestEveryExampleIsACommandLine(t *testing.T) {
	t.Parallel()
	for _, cmd := range every(cli.Root(clitest.NewEnv())) {
		lines, own := 0, false
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			line = strings.TrimSuffix(strings.TrimPrefix(line, "source <("), ")")
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			lines++
			args := clitest.Words(t, line)
			if args[0] != "retrysafe" {
				t.Errorf("%s: %q is not a line of ours", cmd.CommandPath(), line)
				continue
			}
			found, rest, err := cli.Root(clitest.NewEnv()).Find(args[1:])
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
				continue
			}
			own = own || strings.HasPrefix(found.CommandPath(), cmd.CommandPath())
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
			if err := found.ValidateFlagGroups(); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
			if found.HasSubCommands() && len(found.Flags().Args()) > 0 {
				t.Errorf("%s: %q: there is no such command", cmd.CommandPath(), line)
			}
		}
		if lines == 0 || !own && cmd.Name() != "help" {
			t.Errorf("%s: no example is about it", cmd.CommandPath())
		}
	}
}

func TestHelpSaysWhatScriptsNeed(t *testing.T) {
	t.Parallel()
	s := clitest.NewShell(t, "")
	s.Run("--help").Exits(0).Says(exit.Help, "sqlite:FILE", "# outcomes that need a person\n  retrysafe keys groups").Hides("--dead")
	s.Run("").Exits(0).Says(exit.Help)
	s.Run("keys").Exits(0).Says("retrysafe keys groups")
	s.Run("help keys show").Exits(0).Says("retrysafe keys show [SCOPE] KEY")
	s.Run("keys show --help").Exits(0).Says("Global Flags:", "--store")
	s.Run("completion bash").Exits(0).Says("bash completion")
	s.Run("__complete keys list --state", "un").Exits(0).Says("unknown")
}

// docs/cli.md is what the commands say of themselves.
func TestDocsAreWhatTheCommandsSay(t *testing.T) {
	t.Parallel()
	got := page(cli.Root(clitest.NewEnv()))
	if *clitest.Update {
		clitest.Must(t, os.WriteFile(pages.Path(t, "docs/cli.md"), []byte(got), 0o644))
	}
	if got != pages.Read(t, "docs/cli.md") {
		t.Error("docs/cli.md is not what the commands say; go test ./cmd/retrysafe/internal/cli -run Docs -update writes it anew")
	}
}

// page returns docs/cli.md.
func page(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# The command line

Everything that ` + "`retrysafe --help`" + ` says, on one page. A test generates it from the commands themselves
(` + "`go test ./cmd/retrysafe/internal/cli -run Docs -update`" + `).

- [Exit codes](#exit-codes)
- [Stores](#stores)
- [Output](#output)
`)
	commands := slices.DeleteFunc(every(root)[1:], func(cmd *cobra.Command) bool {
		return cmd.Name() == "help" || strings.HasPrefix(cmd.CommandPath(), "retrysafe completion ")
	})
	for _, cmd := range commands {
		depth := strings.Repeat("  ", strings.Count(cmd.CommandPath(), " ")-1)
		b.WriteString(depth + "- [" + cmd.CommandPath() + "](#" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + "): " + lower(cmd.Short) + "\n")
	}
	b.WriteString("\n## Exit codes\n\n| code | means |\n|---|---|\n")
	for line := range strings.Lines(exit.Help) {
		if code, means, ok := strings.Cut(strings.TrimSpace(line), " "); ok && code != "Exit" {
			b.WriteString("| " + code + " | " + strings.TrimSpace(means) + " |\n")
		}
	}
	b.WriteString(`
An error is one line on standard error that says what is wrong and what to do about it. For a configuration file every
error is reported, one line for each.

## Stores

A store is given as a URL: ` + "`sqlite:FILE`" + `, ` + "`postgres://user:password@host/database`" + ` (with ` + "`?schema=NAME`" + ` for
tables in a schema, ` + "`?pgbouncer=true`" + ` behind a pooler in transaction mode, and ` + "`?anyserver=true`" + ` for a server that is
[not PostgreSQL](choosing-a-store.md#servers-that-only-speak-postgresqls-protocol)), ` + "`mysql://user:password@host/database`" + `, ` + "`redis://user:password@host`" + `
([clusters, sentinels and parameters](redis.md#opening-it)), ` + "`dynamodb://REGION/TABLE`" + `
([credentials](dynamodb.md#opening-it) as for every AWS program), or, for a gateway, ` + "`memory:`" + `. The URL
comes from ` + "`--store`" + `, from the configuration of a gateway (` + "`--config`" + `), or from ` + "`$RETRYSAFE_STORE`" + `, in this order.
Other users of the machine can see a password on a command line: put it into the variable or the configuration. No output
contains it.

Commands that read a store never change it, and never create one: a store that does not exist is exit code 3. If records
are encrypted, the file with the keys comes from ` + "`--keys-file`" + `, from the configuration, or from ` + "`$RETRYSAFE_KEYS_FILE`" + `.
Without the keys nothing is shown or done.

## Output

Lists are tables for people; ` + "`--format json`" + ` is for scripts: one JSON object in each line. Times are by the store's clock:
"3 min ago", and exact with ` + "`--long`" + `. Text that comes from a store is escaped as in Go, so that no key, reason or note can
control a terminal; a scope or key with special characters is shown in double quotes, and may be given so. In
` + "`--format csv`" + ` no cell is a formula. Progress of long work is shown on standard error.
`)
	for _, cmd := range commands {
		b.WriteString("\n" + strings.Repeat("#", 1+strings.Count(cmd.CommandPath(), " ")) + " " + cmd.CommandPath() + "\n\n")
		b.WriteString(cmd.Short + ".\n\n```text\n" + strings.TrimSpace(cmd.Long) + "\n```\n")
		if !cmd.HasSubCommands() {
			b.WriteString("\n```text\nretrysafe " + strings.TrimPrefix(cmd.UseLine(), "retrysafe ") + "\n" + flagsOf(cmd) + "```\n")
		}
		b.WriteString("\n```sh\n" + unindented(cmd.Example) + "\n```\n")
	}
	return b.String()
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	return strings.Join(lines, "\n")
}

// flagsOf returns the usage of all flags of a command.
func flagsOf(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.AddFlagSet(cmd.LocalFlags())
	all.AddFlagSet(cmd.InheritedFlags())
	if f := all.Lookup("help"); f != nil {
		f.Hidden = true
	}
	if usages := all.FlagUsages(); usages != "" {
		return "\n" + usages
	}
	return ""
}
