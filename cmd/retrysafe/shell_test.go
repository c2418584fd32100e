package main_test

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

	main "github.com/retrysafe/retrysafe/cmd/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var update = flag.Bool("update", false, "write the golden files and docs/cli.md anew")

var scratch string // a folder for the binary

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "retrysafe-cmd-"); err != nil {
		panic(err)
	}
	testservers.Main(m)
	_ = os.RemoveAll(scratch) // the tests have their verdict already
}

// A shell runs command lines of one test.
type shell struct {
	t      *testing.T
	env    map[string]string
	stdin  string
	person bool
}

// newShell returns a shell whose commands work on a store.
func newShell(t *testing.T, store string) *shell {
	return &shell{t: t, env: map[string]string{"RETRYSAFE_STORE": store, "USER": "anna"}}
}

// typing returns a shell at which somebody types this.
func (s *shell) typing(text string) *shell {
	other := *s
	other.stdin, other.person = text, true
	return &other
}

func (s *shell) with(name, value string) *shell {
	other := *s
	other.env = maps.Clone(s.env)
	other.env[name] = value
	return &other
}

// printed is what a command has printed, and its exit code.
type printed struct {
	t        *testing.T
	line     string
	code     int
	out, err string
}

// run runs a line, split into words as a shell does.
func (s *shell) run(line string, more ...string) *printed {
	s.t.Helper()
	return s.runs(append(words(s.t, line), more...)...)
}

func (s *shell) runs(args ...string) *printed {
	s.t.Helper()
	var out, err strings.Builder
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	code := main.Run(ctx, args, &main.World{Stdin: strings.NewReader(s.stdin), Stdout: &out, Stderr: &err, Env: s.env, Person: s.person})
	return &printed{s.t, strings.Join(args, " "), code, out.String(), err.String()}
}

// exits fails the test unless the exit code is this.
func (p *printed) exits(code int) *printed {
	p.t.Helper()
	if p.code != code {
		p.t.Fatalf("retrysafe %s: exit code %d, want %d\nstdout: %s\nstderr: %s", p.line, p.code, code, p.out, p.err)
	}
	return p
}

// says fails the test unless each text is in the output.
func (p *printed) says(texts ...string) *printed {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.out+p.err, text) {
			p.t.Errorf("retrysafe %s does not say %q\nstdout: %s\nstderr: %s", p.line, text, p.out, p.err)
		}
	}
	return p
}

// hides fails the test if a text is in the output.
func (p *printed) hides(texts ...string) *printed {
	p.t.Helper()
	for _, text := range texts {
		if strings.Contains(p.out+p.err, text) {
			p.t.Errorf("retrysafe %s says %q\nstdout: %s\nstderr: %s", p.line, text, p.out, p.err)
		}
	}
	return p
}

// inOneLine fails the test unless a failure is said in one line on the standard
// error, and nothing else anywhere.
func (p *printed) inOneLine() *printed {
	p.t.Helper()
	if p.out != "" || strings.Count(p.err, "\n") != 1 || !strings.HasPrefix(p.err, "retrysafe: ") {
		p.t.Errorf("retrysafe %s: not one line on the standard error\nstdout: %s\nstderr: %s", p.line, p.out, p.err)
	}
	return p
}

// own is what each run has of its own.
var own = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b1[789]\d{14}\b`), "REVISION"},
	{regexp.MustCompile(`\baction [A-Z2-7]{26}\b`), "action ID"},
	{regexp.MustCompile(`"id":"[A-Z2-7]{26}"`), `"id":"ID"`},
	{regexp.MustCompile(`\b(\d+ (s|min) ago|just now)`), "NOW"},
	{regexp.MustCompile(`@[\w.-]+`), "@HOST"},
	{regexp.MustCompile(`\bin \d+ (s|min|h)\b`), "SOON"},
	{regexp.MustCompile(`\banother \d+ (s|min|h)\b`), "another WHILE"},
	{regexp.MustCompile(`  \d+ (s|min)  `), "  AGE  "},
	{regexp.MustCompile(`  +`), "  "},
}

// golden compares the output with a file, times and the like aside.
func (p *printed) golden(name string) {
	p.t.Helper()
	got := p.out
	for _, o := range own {
		got = o.pattern.ReplaceAllString(got, o.with)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	if got != string(want) {
		p.t.Errorf("retrysafe %s prints\n%s\nand %s has\n%s", p.line, got, file, want)
	}
}

// words splits a line as a shell does that knows quotes and comments.
func words(t *testing.T, line string) (all []string) {
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
		case c == '>' && word == "": // where the output goes is the shell's matter
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
