package telemetry_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry"
)

func replayed(m *telemetry.Metrics, scopes ...string) {
	for _, s := range scopes {
		m.Observer().Observe(retrysafe.Event{Kind: retrysafe.EventReplayed, Ref: retrysafe.Ref{Scope: s, Key: "key of " + s}})
	}
}

func tenantSeries(label string) string {
	return fmt.Sprintf("retrysafe_tenant_events_total{event=\"replayed\",tenant=%q}", label)
}

func TestTenantsAreOptIn(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, -1} {
		m := telemetry.New(&telemetry.Options{Tenants: most})
		replayed(m, "acme", "evil")
		if n := count(shown(t, m), "retrysafe_tenant_events_total"); n != 0 {
			t.Errorf("with Tenants: %d there are %d series of tenants, want none", most, n)
		}
	}
}

func TestTenantsAreHashed(t *testing.T) {
	t.Parallel()
	m := telemetry.New(&telemetry.Options{Tenants: 10})
	replayed(m, "acme", "acme", "acme\x1fop\x1fPOST /payments", "acme\x1fby\x1falice", "evil", "")
	wantSeries(t, shown(t, m), map[string]float64{
		tenantSeries(retrysafe.HashKey("acme")): 4, // whatever the scope is narrowed to
		tenantSeries(retrysafe.HashKey("evil")): 1,
		tenantSeries("none"):                    1,
	})
}

func TestW78_TenantLabelsAreCapped(t *testing.T) {
	t.Parallel()
	const tenants = 10_000
	for _, c := range []struct{ most, labels int }{{1, 1}, {50, 50}, {1_000_000, 1000}} {
		m := telemetry.New(&telemetry.Options{Tenants: c.most})
		for i := range tenants {
			replayed(m, fmt.Sprintf("tenant-%d", i))
		}
		all := shown(t, m)
		if got := count(all, "retrysafe_tenant_events_total"); got != c.labels+1 {
			t.Errorf("with Tenants: %d there are %d series, want %d and the others", c.most, got, c.labels)
		}
		wantSeries(t, all, map[string]float64{
			tenantSeries(retrysafe.HashKey("tenant-0")): 1,
			tenantSeries("other"):                       float64(tenants - c.labels),
			"api_idempotency_reserve_replay_total":      tenants,
		})
	}
}

// Whatever a scope or a key has in it, the scrape has nothing of it.
func TestW81_LabelsCannotBeInjected(t *testing.T) {
	t.Parallel()
	m := telemetry.New(&telemetry.Options{Tenants: 100})
	evil := []string{
		"a\nforged_total 1\n", `a"} 1` + "\n", `back\slash`, "\xff\xfe not UTF-8", "\x00", "\x1b[31mred", "a\u2028b", strings.Repeat("long", 1<<16),
		`{tenant="x"}`, "# HELP forged", "\r\n",
	}
	replayed(m, evil...)
	for _, s := range evil {
		m.Observer().Observe(retrysafe.Event{Kind: retrysafe.EventCompleted, Ref: retrysafe.Ref{Scope: s, Key: s}, Operation: s, Took: 1})
		m.Exchange(s, s, 200, 1)
	}
	line := regexp.MustCompile(`^retrysafe_tenant_events_total\{event="(replayed|completed)",tenant="[0-9a-f]{16}"\} 1$`)
	n := 0
	for l := range strings.Lines(scrape(t, m)) {
		if strings.Contains(l, "forged") || strings.Contains(l, "\x1b") || strings.Contains(l, "key of") {
			t.Errorf("a line was injected: %q", l)
		}
		if strings.HasPrefix(l, "retrysafe_tenant_events_total") {
			n++
			if !line.MatchString(strings.TrimSuffix(l, "\n")) {
				t.Errorf("a tenant's line is %q", l)
			}
		}
	}
	if n != 2*len(evil) {
		t.Errorf("there are %d lines of tenants, want %d", n, 2*len(evil))
	}
}
