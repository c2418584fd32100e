package hammer_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// FuzzParsed has a bug that no seed shows: only in a child that is told to.
func FuzzParsed(f *testing.F) {
	hammer.Add(f, []byte(`{"a": 1}`), "name", 7, true, uint64(1), byte(2))
	hammer.Add(f, []byte(`[]`), "", 0, false, uint64(0), byte(0))
	buggy := os.Getenv("HAMMER_BUGGY") != ""
	hammer.Fuzz(f, func(t *testing.T, b []byte, _ string, _ int, _ bool, _ uint64, _ byte) {
		if buggy && strings.HasPrefix(string(b), "[[") {
			t.Error("it does not like that")
		}
	})
}

func TestBugsAreFoundAndShown(t *testing.T) {
	t.Parallel()
	run := func(env string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^FuzzParsed$", "-hammer=20000")
		cmd.Env = append(os.Environ(), env)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("HAMMER_BUGGY="); err != nil {
		t.Errorf("a sound target: %v\n%s", err, out)
	}
	out, err := run("HAMMER_BUGGY=1")
	if err == nil || !strings.Contains(out, "it does not like that") || !strings.Contains(out, `given []byte{0x5b, 0x5b`) {
		t.Errorf("a target with a bug: %v\n%.2000s", err, out)
	}
}
