package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool is Prometheus's own judge of rules and expressions.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v: scripts/setup installs it, with Debian's package prometheus", err)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	readYAML(t, "prometheus/rules.yaml", &file)
	var all []alertRule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("there are %d alerts; this test looks in the wrong place", len(all))
	}
	return all
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "prometheus/rules.yaml")
	promtool(t, "test", "rules", "prometheus/rules_test.yaml")
}

// An alert that was never seen to fire may never fire, and one that was never seen to be
// quiet may never be.
func TestEveryAlertIsSeenToFireAndToBeQuiet(t *testing.T) {
	t.Parallel()
	var file struct {
		RuleFiles []string `json:"rule_files"`
		Every     string   `json:"evaluation_interval"`
		Tests     []struct {
			Interval string
			Series   []struct{ Series, Values string } `json:"input_series"`
			Alerts   []struct {
				At     string           `json:"eval_time"`
				Name   string           `json:"alertname"`
				Expect []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	readYAML(t, "prometheus/rules_test.yaml", &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Expect) > 0
			quiet[a.Name] = quiet[a.Name] || len(a.Expect) == 0
		}
	}
	var names []string
	for _, r := range alertRules(t) {
		if names = append(names, r.Alert); !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s is seen to fire: %t, to be quiet: %t", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
	for name := range fires {
		if !slices.Contains(names, name) {
			t.Errorf("rules_test.yaml tests %s, which there is not", name)
		}
	}
}

// An alert at night says how bad it is, what it is, and where to read what to do.
func TestEveryAlertLeadsToTheRunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Alerts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	headings := 0
	for _, r := range alertRules(t) {
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s does not say what it is", r.Alert)
		}
		// The anchor of a heading of one word is the word in lower case.
		if want := "https://github.com/retrysafe/retrysafe/blob/main/docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		if n := strings.Count(section, "\n### "+r.Alert+"\n"); n != 1 {
			t.Errorf("docs/runbook.md has %d sections for %s, want one", n, r.Alert)
		}
		headings++
	}
	if n := strings.Count(section, "\n### "); n != headings {
		t.Errorf("docs/runbook.md has %d sections of alerts, and there are %d alerts", n, headings)
	}
}

type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr string }
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("grafana/retrysafe.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID, Title string
		Templating struct {
			List []struct{ Name string }
		}
		Panels []dashboardPanel
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || len(board.Templating.List) != 2 || len(board.Panels) < 20 {
		t.Fatalf("this is no dashboard of ours: %+v", board)
	}
	var names []string
	for _, r := range alertRules(t) {
		names = append(names, r.Alert)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	rules := "groups:\n  - name: dashboard\n    rules:\n"
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q, or beyond the right edge", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d, %q, does not say what it shows", p.ID, p.Title)
		}
		for word := range strings.FieldsSeq(p.Description) {
			if word = strings.Trim(word, ".,:;"); strings.HasPrefix(word, "Retrysafe") && !slices.Contains(names, word) {
				t.Errorf("%q names the alert %s, which there is not", p.Title, word)
			}
		}
		for i, target := range p.Targets {
			// Grafana puts the scrape interval in, and the jobs of the variable.
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "pay|ship").Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%q uses a variable that there is not: %s", p.Title, target.Expr)
			}
			rules += fmt.Sprintf("      - { record: 'panel_%d_%d', expr: %q }\n", p.ID, i, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
