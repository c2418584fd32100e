package prove_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
)

// A user runs the checks on a store of their own: in a sandbox, which is deleted
// afterwards.
func TestProveOnAStoreOfTheUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sh := clitest.NewShell(t, "sqlite:"+filepath.Join(dir, "mine.db"))
	report := filepath.Join(t.TempDir(), "proof.json")
	out := sh.Run("prove isolation -n 200 --seed 7 --format json --output " + report).Exits(0).Out
	if !strings.Contains(out, "passed") || !strings.Contains(out, "seed 7") || !strings.Contains(out, "1 of 1 checks passed") {
		t.Errorf("it says:\n%s", out)
	}
	text, err := os.ReadFile(report)
	clitest.Must(t, err)
	var r prove.Report
	clitest.Must(t, json.Unmarshal(text, &r))
	if r.Verdict != prove.Passed || len(r.Results) != 1 || r.Results[0].Check != "isolation" || len(r.Stores) != 1 {
		t.Errorf("the report: %s", text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind beside the user's file: %v, %v", left, err)
	}
}

func TestProveAsAPage(t *testing.T) {
	t.Parallel()
	sh := clitest.NewShell(t, "memory:")
	page := sh.Run("prove isolation -n 50 --format html").Exits(0).Out
	if !strings.HasPrefix(page, "<!doctype html>") || !strings.Contains(page, "isolation") {
		t.Errorf("the page:\n%s", page)
	}
}

// What is asked for by name must be possible; what is not asked for is skipped.
func TestProveWhatIsImpossible(t *testing.T) {
	t.Parallel()
	sh := clitest.NewShell(t, "memory:")
	if p := sh.Run("prove storm"); p.Code != 5 || !strings.Contains(p.Out, "broken") || !strings.Contains(p.Out, "processes cannot share memory") {
		t.Errorf("storm in memory: exit %d\n%s", p.Code, p.Out)
	}
	out := sh.Run("prove --list").Exits(0).Out
	for _, check := range []string{"model", "sim", "crash", "nth", "storm", "zombie", "wait", "kill", "linear", "isolation", "killdb", "ha", "resend", "torture", "mutants"} {
		if !strings.Contains(out, "\n"+check+" ") {
			t.Errorf("the list lacks %s:\n%s", check, out)
		}
	}
}

// On a store without transactions the checks that need them are named as not promised, and
// the table that was made to look at its class is deleted.
func TestProveOnDynamoDB(t *testing.T) {
	t.Parallel()
	fake := dynamofake.New()
	t.Cleanup(fake.Close)
	sh := clitest.NewShell(t, "dynamodb://eu-central-1/keys?endpoint="+fake.URL)
	if p := sh.Run("prove nth"); p.Code != 5 || !strings.Contains(p.Out, "not promised") || !strings.Contains(p.Out, "class B") {
		t.Errorf("nth: exit %d\n%s", p.Code, p.Out)
	}
	if left := fake.Tables(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
