package field_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/field"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) {
	if code, is := child.Run(field.Roles()); is {
		os.Exit(code)
	}
	testservers.Main(m)
}

// stores are those that processes can share.
var stores = map[string]func(*testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "field.db") },
	"postgres": func(t *testing.T) string { return testservers.Shared(t) },
	"dynamodb": func(t *testing.T) string {
		fake := dynamofake.New()
		t.Cleanup(fake.Close)
		return "dynamodb://eu-central-1/keys?endpoint=" + fake.URL
	},
}

func run(t *testing.T, c prove.Check, address string) *prove.Result {
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
	r := prove.Run(t.Context(), &c, env)
	t.Logf("%s in %v: %v %s", r.Verdict, r.Took, r.Figures, r.Why)
	for _, v := range r.Violations {
		t.Log(v.Invariant, v.Key, v.What, v.Trace)
	}
	return r
}

func TestPromisesHold(t *testing.T) {
	t.Parallel()
	for kind, store := range stores {
		for _, name := range []string{"storm", "zombie", "wait", "kill"} {
			t.Run(fmt.Sprint(name, " on ", kind), func(t *testing.T) {
				t.Parallel()
				if r := run(t, field.Small(name, ""), store(t)); r.Verdict != prove.Passed {
					t.Error(r.Verdict)
				}
			})
		}
	}
}

// Each flaw is found by the check that is for it, as a breach of what it breaks.
func TestFlawsAreFound(t *testing.T) {
	t.Parallel()
	for flaw, by := range map[string]struct {
		check  string
		breaks []string
	}{
		"without a store":            {"storm", []string{"G9"}},
		"fails open":                 {"storm", []string{"S1"}},
		"knows no tenants":           {"storm", []string{"S7"}},
		"repeats the unprotected":    {"zombie", []string{"S1"}},
		"a key per attempt":          {"zombie", []string{"S1"}},
		"effect and answer apart":    {"zombie", []string{"S1"}},
		"swaps without a look":       {"zombie", []string{"S2"}},
		"waits by its first look":    {"wait", []string{"L3"}},
		"answers before it is saved": {"kill", []string{"S2", "S4"}}, // another answer now, or none
	} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			r := run(t, field.Small(by.check, flaw), stores["sqlite"](t))
			if !slices.ContainsFunc(r.Violations, func(v prove.Violation) bool { return slices.Contains(by.breaks, v.Invariant) }) {
				t.Errorf("%s did not find that %v is broken", by.check, by.breaks)
			}
		})
	}
}

// A node with a flaw that does not exist does not start, and the check says so instead
// of passing.
func TestCheckThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	if r := run(t, field.Small("kill", "no such flaw"), stores["sqlite"](t)); r.Verdict != prove.Broken || !strings.Contains(r.Why, "no such flaw") {
		t.Error(r.Verdict, r.Why)
	}
}
