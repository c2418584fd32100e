package prove_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { testservers.Main(program{m}) }

// program runs the tests, and removes the program that they have built.
type program struct{ *testing.M }

func (p program) Run() int {
	clitest.Main(p.M)
	return 0 // m has the exit code
}

// onAStore are the checks that work on a store of the user's, each with a size at which it
// takes seconds.
var onAStore = map[string]string{
	"crash": "1", "nth": "1", "storm": "1", "zombie": "2", "wait": "1", "kill": "20", "linear": "5000", "isolation": "2000", "resend": "10", "torture": "100",
}

// The checks pass on the oldest and the newest PostgreSQL, and on others if
// RETRYSAFE_POSTGRES_VERSIONS names them. The usual version has "make prove".
func TestProveOnVersionsOfPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, version := range testservers.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pg := testservers.NewPostgres(t, &testservers.PostgresOptions{Version: version, InMemory: true})
			for check, n := range onAStore {
				report := filepath.Join(t.TempDir(), check+".json")
				cmd := exec.CommandContext(t.Context(), clitest.Binary(t), "prove", check, "-n", n, "--seed=1", "--store="+pg.URL("postgres"), "--format=json", "--output="+report)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", check, err, out)
					continue
				}
				text, err := os.ReadFile(report)
				clitest.Must(t, err)
				var r prove.Report
				clitest.Must(t, json.Unmarshal(text, &r))
				if r.Verdict != prove.Passed || len(r.Results) != 1 || !strings.HasPrefix(r.Stores[0].Class, "class A") {
					t.Errorf("%s: %s", check, text)
				}
			}
		})
	}
}

// onAStore has every check that works on a store of the user's.
func TestVersionsHaveEveryCheck(t *testing.T) {
	t.Parallel()
	own := []string{"model", "sim", "killdb", "ha", "mutants"} // they work on no store, or on servers of their own
	for line := range strings.Lines(clitest.NewShell(t, "memory:").Run("prove --list").Exits(0).Out) {
		check, _, _ := strings.Cut(line, " ")
		if check != "CHECK" && onAStore[check] == "" && !slices.Contains(own, check) {
			t.Errorf("%s does not run on the versions of PostgreSQL", check)
		}
	}
}
