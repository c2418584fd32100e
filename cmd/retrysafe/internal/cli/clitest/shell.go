// Package clitest lets the tests of command groups run command lines: in the process of
// the test, or in one of their own.
//
//	sh := clitest.NewShell(t, url)
//	sh.Run("keys list --dead").Exits(0).Says("unknown, dead")
package clitest

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// Update says that golden files and docs/cli.md are to be written anew.
var Update = flag.Bool("update", false, "write the golden files and docs/cli.md anew")

// A Shell runs command lines of one test, in the process of the test.
type Shell struct {
	t      *testing.T
	env    map[string]string
	stdin  string
	person bool
}

// NewShell returns a shell whose environment names a store. An empty URL names none.
func NewShell(t *testing.T, store string) *Shell {
	return &Shell{t: t, env: map[string]string{"RETRYSAFE_STORE": store, "USER": "anna"}}
}

// Typing returns the shell with a terminal at which a person types text.
func (s *Shell) Typing(text string) *Shell {
	other := *s
	other.stdin, other.person = text, true
	return &other
}

// Piping returns the shell with text as its standard input.
func (s *Shell) Piping(text string) *Shell {
	other := *s
	other.stdin, other.person = text, false
	return &other
}

// With returns the shell with a variable in its environment.
func (s *Shell) With(name, value string) *Shell {
	other := *s
	other.env = maps.Clone(s.env)
	other.env[name] = value
	return &other
}

// Run runs a command line, split into words as a shell does, and more words.
func (s *Shell) Run(line string, more ...string) *Output {
	s.t.Helper()
	return s.RunArgs(append(Words(s.t, line), more...)...)
}

// RunArgs runs the command line with these words.
func (s *Shell) RunArgs(args ...string) *Output {
	s.t.Helper()
	var out, err strings.Builder
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	env := NewEnv()
	env.Streams = terminal.Streams{In: strings.NewReader(s.stdin), Out: &out, Err: &err, Interactive: func(any) bool { return s.person }}
	env.LookupEnv = func(name string) (string, bool) { v, ok := s.env[name]; return v, ok }
	return &Output{s.t, strings.Join(args, " "), cli.Run(ctx, args, env), out.String(), err.String()}
}

// NewEnv returns an environment without variables, terminals and signals. Its streams are
// to be set.
func NewEnv() *command.Env {
	return &command.Env{
		LookupEnv: func(string) (string, bool) { return "", false },
		Hangups:   func(context.Context) <-chan os.Signal { return nil },
	}
}

// An Output is what a command has printed, and its exit code.
type Output struct {
	t    *testing.T
	Line string
	Code int
	// Out and Err are what it printed on its standard streams.
	Out, Err string
}

// Exits fails the test unless the exit code is this.
func (o *Output) Exits(code int) *Output {
	o.t.Helper()
	if o.Code != code {
		o.t.Fatalf("retrysafe %s: exit code %d, want %d\nstdout: %s\nstderr: %s", o.Line, o.Code, code, o.Out, o.Err)
	}
	return o
}

// Says fails the test unless each text is in the output.
func (o *Output) Says(texts ...string) *Output {
	o.t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.Out+o.Err, text) {
			o.t.Errorf("retrysafe %s does not say %q\nstdout: %s\nstderr: %s", o.Line, text, o.Out, o.Err)
		}
	}
	return o
}

// Hides fails the test if a text is in the output.
func (o *Output) Hides(texts ...string) *Output {
	o.t.Helper()
	for _, text := range texts {
		if strings.Contains(o.Out+o.Err, text) {
			o.t.Errorf("retrysafe %s says %q\nstdout: %s\nstderr: %s", o.Line, text, o.Out, o.Err)
		}
	}
	return o
}

// InOneLine fails the test unless the output is one line on standard error that begins
// with the name of the program.
func (o *Output) InOneLine() *Output {
	o.t.Helper()
	if o.Out != "" || strings.Count(o.Err, "\n") != 1 || !strings.HasPrefix(o.Err, "retrysafe: ") {
		o.t.Errorf("retrysafe %s: not one line on the standard error\nstdout: %s\nstderr: %s", o.Line, o.Out, o.Err)
	}
	return o
}

// varying are the parts of an output that differ from run to run.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`(^|[^\w.])1[789]\d{14}\b`), "${1}REVISION"}, // and no fraction of a second
	{regexp.MustCompile(`\baction [A-Z2-7]{26}\b`), "action ID"},
	{regexp.MustCompile(`"id":"[A-Z2-7]{26}"`), `"id":"ID"`},
	{regexp.MustCompile(`\b(\d+ (s|min) ago|just now)`), "NOW"},
	{regexp.MustCompile(`@[\w.-]+`), "@HOST"},
	{regexp.MustCompile(`\bin \d+ (s|min|h)\b`), "SOON"},
	{regexp.MustCompile(`\banother \d+ (s|min|h)\b`), "another WHILE"},
	{regexp.MustCompile(`  \d+ (s|min)  `), "  AGE  "},
	{regexp.MustCompile(`  +`), "  "},
}

// Steady returns an output without the parts that differ from run to run.
func Steady(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return text
}

// Golden fails the test unless standard output is what a file of testdata has, apart from
// times, IDs and the like.
func (o *Output) Golden(name string) {
	o.t.Helper()
	got := Steady(o.Out)
	file := filepath.Join("testdata", name)
	if *Update {
		Must(o.t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	Must(o.t, err)
	if got != string(want) {
		o.t.Errorf("retrysafe %s prints\n%s\nand %s has\n%s", o.Line, got, file, want)
	}
}

// Must fails the test at once if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Words splits a line as a shell does that knows quotes.
func Words(t *testing.T, line string) (all []string) {
	t.Helper()
	word, quote, open := "", rune(0), false
	for _, c := range line + " " {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ' && (open || word != ""):
			all, word, open = append(all, word), "", false
		case c == ' ':
		case c == '>' && word == "": // a redirection is not part of the command
			return all
		default:
			word += string(c)
		}
	}
	if quote != 0 {
		t.Fatalf("%q has an open quote", line)
	}
	return all
}
