package wire_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/wire"
)

var scratch string // a folder for the command

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "retrysafe-wire-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// command builds the command once.
var command = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "retrysafe")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/retrysafe/retrysafe/cmd/retrysafe").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// check carries a check out at a small size, over SQLite.
func check(t *testing.T, name string, n int) *prove.Result {
	t.Helper()
	program, err := command()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range wire.Checks() {
		if c.Name == name {
			r := prove.Run(t.Context(), &c, prove.Env{
				Store: "sqlite:" + filepath.Join(t.TempDir(), "keys.db"), Seed: 1, N: n, Dir: t.TempDir(), Program: program,
				Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			t.Logf("%s took %v: %+v", name, r.Took, r.Figures)
			return r
		}
	}
	t.Fatalf("there is no check %s", name)
	return nil
}

// wantPassed fails for each promise that was broken.
func wantPassed(t *testing.T, r *prove.Result) {
	t.Helper()
	if r.Verdict != prove.Passed {
		t.Errorf("%s: %s %s", r.Check, r.Verdict, r.Why)
	}
	for _, v := range r.Violations {
		t.Errorf("%s %s: %s %q", v.Invariant, v.Key, v.What, v.Trace)
	}
}
