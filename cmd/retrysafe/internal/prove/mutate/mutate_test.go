package mutate_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/mutate"
)

const source = "../../../../.."

// Every bug can still be planted: code that moves takes its mutants along. The source
// compiles with each of them, and the tests that have to find it exist. There are enough
// of them, and the flaw of every seed document is among them.
func TestMutantsCanBePlanted(t *testing.T) {
	t.Parallel()
	all, err := mutate.Load(source)
	must(t, err)
	if len(all) < 75 {
		t.Errorf("%d mutants, want at least 75", len(all))
	}
	c := newCompiler(t, all)
	seeds, layers := map[string]bool{}, map[string]bool{}
	for _, m := range all {
		seeds[m.Seed], layers[m.Layer] = true, true
		planted, err := m.Plant(source)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if was, err := os.ReadFile(filepath.Join(source, m.File)); err != nil || string(was) == planted {
			t.Errorf("%s changes nothing (%v)", m.Name, err)
		}
		if err := c.compile(m.File, planted); err != nil {
			t.Errorf("%s does not compile: %v", m.Name, err)
		}
		if err := missingTests(m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	for _, seed := range []string{"000", "001", "002", "003", "004"} {
		if !seeds[seed] {
			t.Errorf("the flaw of seed %s is not planted", seed)
		}
	}
	if len(layers) < 5 {
		t.Errorf("only %v have to find something", layers)
	}
}

// A tree with a bug that its test finds, one that it does not, and others that show
// nothing.
func TestOnlyFoundBugsCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module x\n\ngo 1.26\n",
		"x.go":                 "package x\n\nfunc sum(a, b int) int {\n\treturn a + b\n}\n\nfunc idle() {}\n",
		"x_test.go":            "package x\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(1, 2) != 3 {\n\t\tt.Error(\"no\")\n\t}\n}\n",
		mutate.Folder + "/.up": "",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for name, c := range map[string]struct {
		lines   string
		run     string
		verdict prove.Verdict
		says    string
	}{
		"found":      {"- return a + b\n+ \treturn a - b\n", "TestSum", prove.Passed, ""},
		"not found":  {"- func idle() {}\n+ func idle() { idle() }\n", "TestSum", prove.Failed, "wrong: not found by unit (go test . -run TestSum)"},
		"gone":       {"- return a * b\n+ \treturn a - b\n", "TestSum", prove.Broken, `has no line "return a * b" any more`},
		"no program": {"- return a + b\n+ \treturn a +\n", "TestSum", prove.Broken, "cannot be compiled"},
		"no test":    {"- return a + b\n+ \treturn a - b\n", "TestProduct", prove.Broken, `no test is called "TestProduct"`},
	} {
		file := filepath.Join(dir, filepath.FromSlash(mutate.Folder), "one.mutant")
		must(t, os.WriteFile(file, []byte("flaw: wrong\nlayer: unit\nkill: go test . -run "+c.run+"\nfile: x.go\n"+c.lines), 0o600))
		r := prove.Run(context.Background(), &mutate.Checks()[0], prove.Env{Source: dir, Seed: 1, Log: slog.New(slog.DiscardHandler)})
		said := r.Why
		for _, v := range r.Violations {
			said += v.What
		}
		if r.Verdict != c.verdict || !strings.Contains(said, c.says) {
			t.Errorf("%s: %s, %s", name, r.Verdict, said)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
