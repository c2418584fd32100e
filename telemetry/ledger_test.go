package telemetry_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/telemetry"
)

func ledgers() []telemetry.LedgerStats {
	return []telemetry.LedgerStats{{
		Name: "bank", Compared: 3, Failed: 1, LastRun: time.Unix(1700, 0), LastSuccess: time.Unix(1600, 0),
		Differences: map[string]int64{"only_theirs": 2, "different": 0},
	}}
}

func TestLedgersAreShown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	forget := m.Ledgers(ledgers)
	m.Ledgers(nil)()
	got := shown(t, m)
	want := map[string]float64{
		`retrysafe_ledger_runs_total{ledger="bank",result="compared"}`:   3,
		`retrysafe_ledger_runs_total{ledger="bank",result="failed"}`:     1,
		`retrysafe_ledger_differences{kind="only_theirs",ledger="bank"}`: 2,
		`retrysafe_ledger_differences{kind="different",ledger="bank"}`:   0,
		`retrysafe_ledger_last_run_timestamp_seconds{ledger="bank"}`:     1700,
		`retrysafe_ledger_last_success_timestamp_seconds{ledger="bank"}`: 1600,
	}
	wantSeries(t, got, want)
	forget()
	got = shown(t, m)
	if got[`retrysafe_ledger_runs_total{ledger="bank",result="compared"}`] != 3 || count(got, "retrysafe_ledger_differences") != 0 {
		t.Errorf("after the source is gone: %v", got)
	}
}

// A configuration may allow labels of tenants later, and take them back.
func TestTenantsMayChange(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	replayed(m, "before")
	m.Tenants(1)
	replayed(m, "acme", "evil")
	m.Tenants(0)
	replayed(m, "acme", "late")
	got := shown(t, m)
	if n := count(got, "retrysafe_tenant_events_total"); n != 2 || got[tenantSeries("other")] != 1 {
		t.Errorf("%d series of tenants: %v", n, got)
	}
}
