package telemetry_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe"
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
	labelled := regexp.MustCompile(`\b((?:api_idempotency|retrysafe)_[a-z_]+)(?:\{(\w+)=~?"([^"]*)"\})?`)
	named := 0
	for _, m := range labelled.FindAllStringSubmatch(page(t), -1) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); strings.HasPrefix(known[base], "histogram") {
				name = base
			}
		}
		what, ok := known[name]
		if !ok {
			t.Errorf("the page asks for %s, which there is not", m[1])
			continue
		}
		named++
		if m[2] != "" && !slices.Contains(strings.Fields(what)[1:], m[2]) {
			t.Errorf("the page asks for %s by %s, which is not a label of it", name, m[2])
		}
		if m[2] == "event" && !slices.ContainsFunc(kinds(), func(k retrysafe.EventKind) bool {
			return k.String() == m[3] && slices.Contains(moves[k].always, event(m[3]))
		}) {
			t.Errorf("the page asks for the event %q, which there is not", m[3])
		}
	}
	if named < len(known) {
		t.Errorf("found %d names on the page and there are %d metrics; this test looks in the wrong place", named, len(known))
	}
}

func TestDocsAlertsAreRules(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(page(t), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) != 3 {
		t.Fatalf("the page has %+v, want three alerts", file)
	}
	for _, rule := range file.Groups[0].Rules {
		if rule.For != "" {
			must(time.ParseDuration(rule.For))(t)
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
			t.Errorf("%s does not say how bad it is, or what", rule.Alert)
		}
		if strings.Count(rule.Expr, "(") != strings.Count(rule.Expr, ")") || strings.Count(rule.Expr, "{") != strings.Count(rule.Expr, "}") {
			t.Errorf("%s: %s is not an expression", rule.Alert, rule.Expr)
		}
		for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			if !regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b`).MatchString(rule.Expr) {
				t.Errorf("%s speaks of the label %s, which its expression drops", rule.Alert, m[1])
			}
		}
		if !strings.Contains(page(t), "| `"+rule.Alert+"` |") {
			t.Errorf("the page does not say why %s rings", rule.Alert)
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
