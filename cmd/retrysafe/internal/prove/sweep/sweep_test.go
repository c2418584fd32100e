package sweep_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sweep"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) {
	if code, is := child.Run(sweep.BentRoles()); is {
		os.Exit(code)
	}
	testservers.Main(m)
}

// run carries a check out in a sandbox of its own.
func run(t *testing.T, c *prove.Check, address string) *prove.Result {
	t.Helper()
	y, err := sandbox.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	env := prove.Env{Store: y.URL, Seed: 1, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	r := prove.Run(t.Context(), c, env)
	figures, _ := json.Marshal(r.Figures)
	t.Logf("%s: %s in %v: %s %s", c.Name, r.Verdict, r.Took, figures, r.Why)
	for i := range r.Violations[:min(len(r.Violations), 5)] {
		t.Logf("%s %s: %s %q", r.Violations[i].Invariant, r.Violations[i].Key, r.Violations[i].What, r.Violations[i].Trace)
	}
	return r
}

func stores(t *testing.T) map[string]string {
	return map[string]string{
		"memory": "memory:", "sqlite": "sqlite:" + filepath.Join(t.TempDir(), "mine.db"), "postgres": testservers.Shared(t),
	}
}

// The checks pass on every store, and look at what they say they do.
func TestChecks(t *testing.T) {
	t.Parallel()
	for name, address := range stores(t) {
		for _, c := range sweep.Coarse(9) {
			if name == "memory" && c.Needs.Has(prove.Processes) {
				continue
			}
			t.Run(c.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				if r := run(t, &c, address); r.Verdict != prove.Passed {
					t.Errorf("%s", r.Verdict)
				}
			})
		}
	}
}

// What is bent is found.
func TestFlawsAreFound(t *testing.T) {
	t.Parallel()
	for name, flaw := range sweep.Flaws {
		for _, c := range flaw.Checks() {
			breaks := flaw.Breaks[c.Name]
			if breaks == nil {
				continue
			}
			t.Run(name+" "+c.Name, func(t *testing.T) {
				t.Parallel()
				address := "memory:"
				if c.Needs.Has(prove.Processes) {
					address = "sqlite:" + filepath.Join(t.TempDir(), "mine.db")
				}
				r := run(t, &c, address)
				if !slices.ContainsFunc(r.Violations, func(v prove.Violation) bool { return slices.Contains(breaks, v.Invariant) }) {
					t.Errorf("%s with %d violations, want one of %v", r.Verdict, r.Found, breaks)
				}
			})
		}
	}
}
