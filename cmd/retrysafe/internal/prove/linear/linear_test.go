package linear_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/linear"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) {
	if code, is := child.Run(linear.Roles()); is {
		os.Exit(code)
	}
	testservers.Main(m)
}

// Each check passes on each store that it can be carried out on.
func TestChecksPass(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{"linear": 6_000, "isolation": 3_000} // enough for a client to be killed
	for _, c := range linear.Checks() {
		for kind, store := range stores(t, &c) {
			t.Run(c.Name+" "+kind, func(t *testing.T) {
				t.Parallel()
				r := prove.Run(t.Context(), &c, prove.Env{Store: store, Seed: 7, N: sizes[c.Name], Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
				t.Logf("%v %v", r.Took, r.Figures)
				if r.Verdict != prove.Passed {
					t.Errorf("%s: %s", r.Verdict, r.Why)
				}
				for _, v := range r.Violations {
					t.Errorf("%s %q: %s\n\t%s", v.Invariant, v.Key, v.What, strings.Join(v.Trace, "\n\t"))
				}
				if c.Name == "linear" && (r.Figure("clients killed") == 0 || r.Figure("steps without an answer") == 0 || kind != "sqlite" && r.Figure("connections cut") == 0) {
					t.Errorf("nothing went wrong, and so nothing was shown: %v", r.Figures)
				}
			})
		}
	}
}

func stores(t *testing.T, c *prove.Check) map[string]string {
	t.Helper()
	all := map[string]string{
		"postgres": testservers.Shared(t),
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
	}
	if !c.Needs.Has(prove.Processes) {
		all["memory"] = "memory:"
		return all
	}
	fake := dynamofake.New()
	t.Cleanup(fake.Close)
	all["dynamodb"] = "dynamodb://eu-central-1/keys?endpoint=" + fake.URL
	return all
}
