package gateway_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// The process as it is deployed: a ledger is compared once, though two gateways have it; the
// scraper's token shows the result on both; a reload that breaks the section is refused, and
// one that adds a ledger takes effect.
func TestGatewaysCompareALedger(t *testing.T) {
	t.Parallel()
	s := newService(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) { clitest.Must(t, os.WriteFile(in(name), []byte(text), 0o600)) }
	yesterday := time.Now().UTC().AddDate(0, 0, -1)
	day := yesterday.Format(time.DateOnly)
	row := func(id string) string { return id + "," + yesterday.Format(time.RFC3339) + "\n" }
	write("bank-"+day+".csv", "id,at\n"+row("lost-charge"))
	write("scraper", "a-token-for-the-scraper\n")
	conf := func(ledgers string) string {
		return fmt.Sprintf(`upstream: %s
tenant: bearer
store: sqlite:%s
store_timeout: 3s
listen: 127.0.0.1:0
defaults: { retention: 3d }
server: { drain_delay: 1ms }
metrics: { tenants: 5 }
admin: { listen: 127.0.0.1:0, token: the-token-of-operators, metrics_token_file: %s }
ledger:
%s`, s.URL, in("keys.db"), in("scraper"), ledgers)
	}
	ledger := func(name string) string {
		return fmt.Sprintf("  - { name: %s, operations: [POST /payments], at: '00:00', theirs: { file: '%s', time: at }, report: { directory: '%s' } }\n", name, in(name+"-{day}.csv"), in("reports"))
	}
	write("gateway.yaml", conf(ledger("bank")))
	a := clitest.Start(t, "gateway", "--config", in("gateway.yaml"))
	a.Word("gateway on ")
	b := clitest.Start(t, "gateway", "--config", in("gateway.yaml"))
	if status, body := clitest.Post(t, b.Word("gateway on ")+"/payments", "a-caller", "one-key-of-a-client", "{}"); status != http.StatusCreated {
		t.Errorf("got %d %s", status, body)
	}
	shows := func(p *clitest.Process, at, series string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			status, body := clitest.Get(t, at+"/metrics", "a-token-for-the-scraper")
			if status == http.StatusOK && strings.Contains(body, series+"\n") {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("/metrics says %d, and not %s:\n%s\n%s", status, series, body, p.Output.String())
			}
		}
	}
	atA, atB := a.Word("operators on "), b.Word("operators on ")
	shows(a, atA, `retrysafe_ledger_differences{kind="only_theirs",ledger="bank"} 1`)
	shows(b, atB, `retrysafe_ledger_differences{kind="only_theirs",ledger="bank"} 1`)
	if _, body := clitest.Get(t, atB+"/metrics", "a-token-for-the-scraper"); !strings.Contains(body, `retrysafe_tenant_events_total{event="completed",tenant="`) {
		t.Errorf("tenants have no label:\n%s", body)
	}
	if status, _ := clitest.Get(t, atA+"/keys", "a-token-for-the-scraper"); status != http.StatusForbidden {
		t.Errorf("the scraper's token got %d from a page", status)
	}
	report, err := os.ReadFile(in("reports/bank-" + day + ".txt"))
	if err != nil || !strings.Contains(string(report), "lost-charge") {
		t.Errorf("the report is %s, %v", report, err)
	}
	ran := strings.Count(a.Output.String(), "ledger compared") + strings.Count(b.Output.String(), "ledger compared")
	if ran != 1 {
		t.Errorf("the day was compared %d times", ran)
	}

	write("gateway.yaml", conf("  - { name: bank, opertions: [POST /payments] }\n"))
	a.Until("did you mean operations?")
	write("bank2-"+day+".csv", "id,at\n"+row("x")+row("y"))
	write("gateway.yaml", conf(ledger("bank")+ledger("bank2")))
	shows(a, atA, `retrysafe_ledger_differences{kind="only_theirs",ledger="bank2"} 2`)
	a.Stop(0)
	b.Stop(0)
	clitest.NewShell(t, "").Run("keys list --store sqlite:" + in("keys.db")).Exits(0).Says("one-key-of-a-client").Hides("ledger")
}
