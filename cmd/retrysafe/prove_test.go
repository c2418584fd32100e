package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A user proves the promises on a store of his own: in a place apart, which is gone
// afterwards.
func TestProveOnAStoreOfTheUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sh := newShell(t, "sqlite:"+filepath.Join(dir, "mine.db"))
	report := filepath.Join(t.TempDir(), "proof.json")
	out := sh.run("prove isolation -n 200 --seed 7 --format json --output " + report).exits(0).out
	if !strings.Contains(out, "passed") || !strings.Contains(out, "seed 7") || !strings.Contains(out, "1 of 1 checks passed") {
		t.Errorf("it says:\n%s", out)
	}
	text, err := os.ReadFile(report)
	must(t, err)
	var r prove.Report
	must(t, json.Unmarshal(text, &r))
	if r.Verdict != prove.Passed || len(r.Results) != 1 || r.Results[0].Check != "isolation" || len(r.Stores) != 1 {
		t.Errorf("the report: %s", text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind beside the user's file: %v, %v", left, err)
	}
}

func TestProveAsAPage(t *testing.T) {
	t.Parallel()
	sh := newShell(t, "memory:")
	page := sh.run("prove isolation -n 50 --format html").exits(0).out
	if !strings.HasPrefix(page, "<!doctype html>") || !strings.Contains(page, "isolation") {
		t.Errorf("the page:\n%s", page)
	}
}

// What is asked for by name must be possible; what is not asked for is skipped.
func TestProveWhatIsImpossible(t *testing.T) {
	t.Parallel()
	sh := newShell(t, "memory:")
	if p := sh.run("prove storm"); p.code != 5 || !strings.Contains(p.out, "broken") || !strings.Contains(p.out, "processes cannot share memory") {
		t.Errorf("storm in memory: exit %d\n%s", p.code, p.out)
	}
	out := sh.run("prove --list").exits(0).out
	for _, check := range []string{"model", "sim", "crash", "nth", "storm", "zombie", "kill", "linear", "isolation", "killdb", "ha", "resend", "torture", "mutants"} {
		if !strings.Contains(out, "\n"+check+" ") {
			t.Errorf("the list lacks %s:\n%s", check, out)
		}
	}
}
