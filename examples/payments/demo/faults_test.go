package demo_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Whatever the provider does, a transfer is charged once, or declined, and every
// request in the end gets that one answer.
func TestTransfersThroughFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault  string
		status int
		charge int
	}{
		{`{"mode": "none"}`, 201, 1},
		{`{"mode": "decline", "times": 1}`, 402, 0},
		{`{"mode": "slow", "delay": "100ms", "times": 1}`, 201, 1},
		{`{"mode": "error_before", "times": 2}`, 201, 1},
		{`{"mode": "error_after", "times": 2}`, 201, 1},
		{`{"mode": "drop_after", "delay": "2s", "times": 3}`, 201, 1},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			const key = "transfer-through-a-fault"
			p := start(t, "", 1)
			p.fault(c.fault)
			first := p.post("/transfers", a, key, euro)
			const status = "/transfers/status?key=" + key
			if quick := first.status == c.status; !quick && (first.status != http.StatusAccepted || first.location != status) {
				t.Errorf("the first request got %+v, want 202", first)
			}
			got := p.until("/transfers", key, 201, 402, 409)
			if got.status != c.status || !got.replayed {
				t.Errorf("got %+v, want %d", got, c.status)
			}
			if again := p.post("/transfers", a, key, euro); again != got {
				t.Errorf("a retry got %+v, want %+v", again, got)
			}
			if looked := p.do(http.MethodGet, p.nodes[0]+status, a, "", ""); looked != got {
				t.Errorf("its status is %+v, want %+v", looked, got)
			}
			if n := len(p.charged(key)); n != c.charge {
				t.Errorf("%d charges, want %d", n, c.charge)
			}
			shown := p.do(http.MethodGet, p.nodes[0]+got.location, a, "", "")
			if c.charge == 1 {
				p.once(key)
				if shown.body != got.body {
					t.Errorf("%s is %+v, want %q", got.location, shown, got.body)
				}
			} else if !strings.Contains(shown.body, `"declined"`) {
				t.Errorf("%s is %+v, want a declined one", got.location, shown)
			}
		})
	}
}

// What became of a charge whose answer was lost is found out, and it is never made
// again.
func TestChargesThroughFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault         string
		first, second int
		charge        int
	}{
		{`{"mode": "none"}`, 201, 201, 1},
		{`{"mode": "decline", "times": 1}`, 402, 402, 0},
		{`{"mode": "slow", "delay": "100ms", "times": 1}`, 201, 201, 1},
		{`{"mode": "error_before", "times": 1}`, 502, 409, 0}, // the caller cannot tell it from the next
		{`{"mode": "error_after", "times": 1}`, 502, 201, 1},
		{`{"mode": "drop_after", "times": 1}`, 502, 201, 1},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			const key = "charge-through-a-fault"
			file := filepath.Join(t.TempDir(), "payments.db")
			p := start(t, "sqlite:"+file, 1)
			p.fault(c.fault)
			if first := p.post("/charges", a, key, euro); first.status != c.first || first.replayed {
				t.Errorf("the first request got %+v, want %d", first, c.first)
			}
			got := p.until("/charges", key, c.second)
			if c.second == http.StatusConflict && (!strings.Contains(got.body, "outcome-unknown") || !strings.Contains(got.body, "is being looked into")) {
				t.Errorf("got %+v, want that its outcome is unknown, and that the janitor asks the provider's ledger", got)
			}
			if n := len(p.charged(key)); n != c.charge {
				t.Errorf("%d charges, want %d", n, c.charge)
			}
			if c.charge == 1 {
				p.once(key)
				if shown := p.do(http.MethodGet, p.nodes[0]+got.location, a, "", ""); shown.body != got.body {
					t.Errorf("%s is %+v, want %q", got.location, shown, got.body)
				}
			}
			must(t, p.stop())
			if settled := c.first == 502 && c.second == 201; settled != byTheLedger(t, file, key) {
				t.Errorf("settled by the provider's ledger: %v, want %v", !settled, settled)
			}
		})
	}
}

// byTheLedger reports whether the record says that it was unknown, and that the
// ledger settled it.
func byTheLedger(t *testing.T, file, key string) bool {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), file, nil)
	must(t, err)
	defer s.Close()
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "tenant-a", Key: key})
	must(t, err)
	notes := r.Inquiry.Notes
	return r.State == retrysafe.StateCompleted && len(notes) > 0 && notes[len(notes)-1].By == "the provider's ledger"
}

func TestProviderHonoursKeys(t *testing.T) {
	t.Parallel()
	p := start(t, "", 1)
	charge := func(key, body string) answer { return p.do(http.MethodPost, p.provider+"/charges", "", key, body) }
	const body = `{"amount": 1200, "currency": "EUR", "account_id": 1, "reference": "mine"}`
	first, again := charge("k1", body), charge("k1", body)
	if first.status != http.StatusCreated || again != first {
		t.Errorf("the same request got %+v and %+v", first, again)
	}
	if got := charge("k1", euro); got.status != http.StatusUnprocessableEntity {
		t.Errorf("another request under the same key got %+v, want 422", got)
	}
	if x, y := charge("", body), charge("", body); x.body == y.body {
		t.Errorf("without a key two requests are one: %+v", x)
	}
	if byKey, byReference := len(p.charged("k1")), len(p.charged("mine")); byKey != 1 || byReference != 3 {
		t.Errorf("%d charges under the key, %d under the reference; want 1 and 3", byKey, byReference)
	}
	if got := charge("k2", `{"amount": 0}`); got.status != http.StatusBadRequest {
		t.Errorf("no amount got %+v, want 400", got)
	}
	for _, fault := range []string{
		``, `{}`, `{"mode": "explode"}`, `{"mode": "slow", "delay": "soon"}`, `{"mode": "slow", "delay": "-1s"}`,
		`{"mode": "slow", "delay": "1h"}`, `{"mode": "decline", "times": -1}`, `{"mode": "none", "why": 1}`, `{"mode": "none"} {}`,
	} {
		if got := p.do(http.MethodPut, p.provider+"/faults", "", "", fault); got.status != http.StatusBadRequest {
			t.Errorf("the fault %q got %+v, want 400", fault, got)
		}
	}
}
