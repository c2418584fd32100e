package gateway

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
	"github.com/retrysafe/retrysafe/janitor"
)

// The console shows a duty that has stopped, or never works, as bad.
func TestDutiesThatDoNotWorkAreShown(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name  string
		p     janitor.Passes
		every time.Duration
		level string
		says  string
	}{
		{"not yet", janitor.Passes{}, time.Hour, "none", "its first pass has not ended yet"},
		{"never", janitor.Passes{Passes: 3, Failures: 3}, time.Hour, "bad", "no pass has succeeded; 3 failed"},
		{"works", janitor.Passes{Passes: 5, Failures: 1, Finished: now.Add(-2 * time.Hour)}, time.Hour, "ok", "5 passes, 1 failed"},
		{"stopped", janitor.Passes{Passes: 5, Failures: 2, Finished: now.Add(-4 * time.Hour)}, time.Hour, "bad", "no pass has succeeded for 4h0m0s; 2 of 5 failed"},
		{"often", janitor.Passes{Passes: 5, Finished: now.Add(-10 * time.Second)}, time.Second, "ok", "last pass 10s ago"},
		{"stopped, often", janitor.Passes{Passes: 5, Finished: now.Add(-2 * time.Minute)}, time.Second, "bad", "for 2m0s"},
		{"without a schedule", janitor.Passes{Passes: 5, Finished: now.Add(-4 * time.Hour)}, 0, "ok", "last pass 4h0m0s ago"},
	} {
		if got := dutyCheck("sweeper", c.p, c.every); got.Name != "sweeper" || got.Level != c.level || !strings.Contains(got.Text, c.says) {
			t.Errorf("%s: %+v, want %s, %q", c.name, got, c.level, c.says)
		}
	}
}

// What is known of ledgers: nothing before the first day was compared, and a failure since.
func TestLedgersThatFailAreShown(t *testing.T) {
	t.Parallel()
	ended := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	last := daily.Result{Day: "2026-03-01", Ended: ended, Summary: ledger.Summary{Complete: true, OnlyTheirs: 2}}
	all := []daily.Stats{
		{Name: "new"},
		{Name: "failed", Failed: 1, Tried: ended},
		{Name: "good", Compared: 2, Failed: 1, Tried: ended, Last: last},
		{Name: "failed since", Compared: 1, Failed: 2, Tried: ended.Add(time.Hour), Last: last},
	}
	shown, counted := reports(all), ledgerStats(all)
	for i, failed := range []bool{false, true, false, true} {
		r, s, known := shown[i], counted[i], i > 1
		if r.Ledger != all[i].Name || r.Day != all[i].Last.Day || !r.Ended.Equal(all[i].Last.Ended) || (r.Err != "") != failed || (r.Differences != nil) != known || known && r.Differences["only_theirs"] != 2 {
			t.Errorf("%s is shown as %+v", all[i].Name, r)
		}
		if s.Name != all[i].Name || s.Compared != all[i].Compared || s.Failed != all[i].Failed || !s.LastRun.Equal(all[i].Tried) || !s.LastSuccess.Equal(all[i].Last.Ended) ||
			(s.Differences != nil) != known || known && s.Differences["only_theirs"] != 2 {
			t.Errorf("%s is counted as %+v", all[i].Name, s)
		}
	}
}

// The console shows the report of a proof as it is, or says that it is none.
func TestProofIsReadWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "proof.html")
	if _, err := readProof(path); err == nil {
		t.Error("a file that is not there is read")
	}
	if err := os.WriteFile(path, []byte("<html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readProof(path); err != nil || string(text) != "<html>" {
		t.Errorf("it is read as %q, %v", text, err)
	}
	if err := os.Truncate(path, maxProof+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readProof(path); err == nil || !strings.Contains(err.Error(), "not the report of retrysafe prove") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// Flags override the file, and so does nothing else: a variable of the environment names
// the store only where neither a file nor a flag does.
func TestOverridesOfAConfiguration(t *testing.T) {
	t.Parallel()
	variables := map[string]string{"RETRYSAFE_STORE": "sqlite:variable.db", "RETRYSAFE_ADMIN_TOKEN": "a-token-of-operators"}
	env := &command.Env{LookupEnv: func(name string) (string, bool) { v, ok := variables[name]; return v, ok }}
	for _, c := range []struct {
		path  string
		flags map[string]string
		want  []config.Flag
	}{
		{"", nil, []config.Flag{{Name: "$RETRYSAFE_STORE", Field: "store", Value: "sqlite:variable.db"}}},
		{"gateway.yaml", nil, nil},
		{"gateway.yaml", map[string]string{"store": "sqlite:flag.db"}, []config.Flag{{Name: "--store", Field: "store", Value: "sqlite:flag.db"}}},
		{"", map[string]string{"store": "sqlite:flag.db"}, []config.Flag{{Name: "--store", Field: "store", Value: "sqlite:flag.db"}}},
		{"gateway.yaml", map[string]string{"admin": "127.0.0.1:0"}, []config.Flag{
			{Name: "--admin", Field: "admin.listen", Value: "127.0.0.1:0"}, {Name: "$RETRYSAFE_ADMIN_TOKEN", Field: "admin.token", Value: "a-token-of-operators"},
		}},
		{"gateway.yaml", map[string]string{"observe": "true", "optional": "true"}, []config.Flag{
			{Name: "--observe", Field: "defaults.observe", Value: "true"}, {Name: "--optional", Field: "defaults.required", Value: "false"},
		}},
		{"gateway.yaml", map[string]string{"observe": "false", "optional": "false"}, []config.Flag{
			{Name: "--observe", Field: "defaults.observe", Value: "false"}, {Name: "--optional", Field: "defaults.required", Value: "true"},
		}},
	} {
		got := overrides(env, c.path, func(flag string) (string, bool) { v, ok := c.flags[flag]; return v, ok })
		if !slices.Equal(got, c.want) {
			t.Errorf("%q with %v: %+v, want %+v", c.path, c.flags, got, c.want)
		}
	}
}
