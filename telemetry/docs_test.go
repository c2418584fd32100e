package telemetry_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/telemetry"
)

func page(t *testing.T) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join("..", "docs", "metrics.md")))(t))
}

// registered returns all metrics of ours as the page has them: name → type and labels.
func registered(t *testing.T) map[string]string {
	t.Helper()
	m := telemetry.New(&telemetry.Options{Tenants: 1})
	w := newWorld(t, m.Observer())
	w.show(m)
	w.live(t)
	m.Exchange("", "fresh", 200, time.Second)
	types := families(t, scrape(t, m))
	for name := range shown(t, m) {
		name, labels, _ := strings.Cut(name, "{")
		types[name] = strings.Fields(types[name])[0] + " " + strings.Join(regexp.MustCompile(`\w+="`).FindAllString(labels, -1), " ")
	}
	ours := map[string]string{}
	for name, what := range types {
		switch {
		case strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"), strings.HasPrefix(name, "promhttp_"):
		default:
			ours[name] = strings.TrimSpace(strings.ReplaceAll(what, `="`, ""))
		}
	}
	return ours
}

func TestDocsHaveEveryMetric(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) ?\\|")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(page(t), -1) {
		labels := strings.ReplaceAll(strings.ReplaceAll(m[3], "`", ""), ",", "")
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s is on the page twice", m[1])
		}
		documented[m[1]] = strings.TrimSpace(m[2] + " " + strings.TrimSpace(labels))
	}
	real := registered(t)
	for name, what := range real {
		if documented[name] != what {
			t.Errorf("%s is %q, and on the page %q", name, what, documented[name])
		}
	}
	for name := range documented {
		if _, ok := real[name]; !ok {
			t.Errorf("%s is on the page and nowhere else", name)
		}
	}
}

func TestDocsHaveEveryEvent(t *testing.T) {
	t.Parallel()
	var want []string
	for _, kind := range kinds() {
		if slices.Contains(moves[kind].always, event(kind.String())) {
			want = append(want, kind.String())
		}
	}
	var got []string
	_, table, _ := strings.Cut(page(t), "| event | means |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the page has the events %v, want %v", got, want)
	}
}

// Alerts and questions that name what does not exist are silent for ever.
func TestDocsAskForWhatExists(t *testing.T) {
	t.Parallel()
	known := registered(t)
	if named := asksFor(t, "docs/metrics.md", known, page(t)); named < len(known) {
		t.Errorf("found %d names on the page and there are %d metrics; this test looks in the wrong place", named, len(known))
	}
}

// Each expression of the alerts and of the dashboard asks for metrics that there are, by
// labels that they have.
func TestDocsAlertsAndDashboardAskForWhatExists(t *testing.T) {
	t.Parallel()
	known := registered(t)
	expressions := map[string]string{}
	for _, r := range rules(t) {
		expressions["the alert "+r.Alert] = r.Expr
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(must(os.ReadFile("../deploy/grafana/retrysafe.json"))(t), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expressions["the panel "+p.Title+": "+target.Expr] = target.Expr
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b`).MatchString(target.Expr) {
					t.Errorf("the legend of the panel %s has the label %s, which its expression drops", p.Title, m[1])
				}
			}
		}
	}
	if len(expressions) < 40 {
		t.Fatalf("there are %d expressions; this test looks in the wrong place", len(expressions))
	}
	grouped := regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	for where, expr := range expressions {
		if asksFor(t, where, known, expr) == 0 {
			t.Errorf("%s asks for no metric of ours", where)
		}
		has := map[string]bool{"job": true, "instance": true, "le": strings.Contains(expr, "_bucket")}
		for _, name := range metricNames.FindAllString(expr, -1) {
			for _, label := range strings.Fields(known[family(known, name)]) {
				has[label] = true
			}
		}
		for _, m := range grouped.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				if label = strings.TrimSpace(label); label != "" && !has[label] {
					t.Errorf("%s groups by %s, which is a label of none of its metrics", where, label)
				}
			}
		}
	}
}

var (
	metricNames = regexp.MustCompile(`\b(?:api_idempotency|retrysafe)_[a-z_]+`)
	selectors   = regexp.MustCompile(`\b((?:api_idempotency|retrysafe)_[a-z_]+)(?:\{([^}]*)\})?`)
	matchers    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
)

// family returns the metric that a series of this name belongs to: of a histogram, its
// own.
func family(known map[string]string, name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base := strings.TrimSuffix(name, suffix); strings.HasPrefix(known[base], "histogram") {
			return base
		}
	}
	return name
}

// asksFor holds that all metrics in a text exist and have the labels, and the values of
// labels, that the text selects them by. It returns how many it has found.
func asksFor(t *testing.T, where string, known map[string]string, text string) (named int) {
	t.Helper()
	values := map[string][]string{
		"duty":    {"sweeper", "reaper", "reconciler", "unknowns"},
		"outcome": {"fresh", "replay", "accepted", "refused", "observed", "passed", "event"},
		"status":  {"none", "1xx", "2xx", "3xx", "4xx", "5xx"},
		"reason":  failreason.Classes,
	}
	for _, kind := range kinds() {
		if slices.Contains(moves[kind].always, event(kind.String())) {
			values["event"] = append(values["event"], kind.String())
		}
	}
	for _, m := range selectors.FindAllStringSubmatch(text, -1) {
		name := family(known, m[1])
		what, ok := known[name]
		if !ok {
			t.Errorf("%s asks for %s, which there is not", where, m[1])
			continue
		}
		named++
		for _, by := range matchers.FindAllStringSubmatch(m[2], -1) {
			label := by[1]
			if label == "job" || label == "instance" { // Prometheus adds them
				continue
			}
			if !slices.Contains(strings.Fields(what)[1:], label) {
				t.Errorf("%s asks for %s by %s, which is not a label of it", where, name, label)
			}
			for value := range strings.SplitSeq(by[2], "|") {
				if values[label] != nil && !slices.Contains(values[label], value) {
					t.Errorf("%s asks for %s where %s is %q, which it never is", where, name, label, value)
				}
			}
		}
	}
	return named
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// rules returns the alerts that are shipped.
func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(must(os.ReadFile("../deploy/prometheus/rules.yaml"))(t)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatalf("there are %+v, want one group of alerts", file)
	}
	return file.Groups[0].Rules
}

// The page says why each alert fires, and names no other.
func TestDocsHaveEveryAlert(t *testing.T) {
	t.Parallel()
	all := rules(t)
	for _, r := range all {
		if strings.Count(page(t), "| `"+r.Alert+"` |") != 1 {
			t.Errorf("the page does not say why %s fires", r.Alert)
		}
		for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"], -1) {
			if !regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b`).MatchString(r.Expr) {
				t.Errorf("%s speaks of the label %s, which its expression drops", r.Alert, m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile("`(Retrysafe\\w+)`").FindAllStringSubmatch(page(t), -1) {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.Alert == m[1] }) {
			t.Errorf("the page has the alert %s, which there is not", m[1])
		}
	}
}

// The table has a counter for each event in twelve names; the page has just these.
func TestDocsHaveTheTwelve(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(page(t), "## The twelve")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(section, -1) {
		named[name[1]] = true
	}
	if len(named) != 12 {
		t.Errorf("the page has %v, want twelve", slices.Sorted(maps.Keys(named)))
	}
}
