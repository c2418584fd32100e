package demo_test

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/examples/payments/demo"
)

var routes = []string{"/payments", "/transfers", "/charges"}

func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	p := start(t, "", 1)
	for _, path := range routes {
		key := "shared-by-tenants" + path[1:]
		of := p.until(path, key, http.StatusCreated)
		for _, at := range []string{of.location, "/transfers/status?key=" + key} {
			if got := p.do(http.MethodGet, p.nodes[0]+at, b, "", ""); got.status != http.StatusNotFound {
				t.Errorf("another tenant's %s is %+v, want 404", at, got)
			}
		}
		if rows := p.rows(p.nodes[0], b, key); len(rows) != 0 {
			t.Errorf("tenant b sees %+v under %s", rows, key)
		}
		if got := p.post(path, b, key, euro); got.replayed || got.body == of.body {
			t.Errorf("the same key of another tenant got %+v, want an effect of its own", got)
		}
		if rows := p.rows(p.nodes[0], a, key); len(rows) != 1 {
			t.Errorf("tenant a sees %+v under %s, want its own", rows, key)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	p := start(t, "", 1)
	for _, path := range routes {
		for _, c := range []struct {
			name, token, key, body string
			want                   int
		}{
			{"nobody", "", "refused-nobody-1234", euro, 401},
			{"a stranger", "Bearer demo-c", "refused-stranger-12", euro, 401},
			{"no scheme", "demo-a", "refused-no-scheme-1", euro, 401},
			{"no key", a, "", euro, 400},
			{"no amount", a, "refused-no-amount-1", `{"currency": "EUR", "account_id": 1}`, 400},
			{"half a cent", a, "refused-half-cent-1", `{"amount": 0.5, "currency": "EUR", "account_id": 1}`, 400},
			{"a currency that is none", a, "refused-currency-12", `{"amount": 1, "currency": "gold", "account_id": 1}`, 400},
			{"no account", a, "refused-no-account-", `{"amount": 1, "currency": "EUR"}`, 400},
			{"an unknown member", a, "refused-unknown-123", `{"amount": 1, "currency": "EUR", "account_id": 1, "tip": 1}`, 400},
			{"no JSON", a, "refused-no-json-123", `amount=1200`, 400},
		} {
			key := c.key
			if key != "" {
				key += path[1:]
			}
			if got := p.post(path, c.token, key, c.body); got.status != c.want {
				t.Errorf("%s: %s got %+v, want %d", path, c.name, got, c.want)
			}
			if key == "" {
				continue
			}
			if rows := p.rows(p.nodes[0], a, key); len(rows) != 0 || len(p.charged(key)) != 0 {
				t.Errorf("%s: %s has made %+v", path, c.name, rows)
			}
		}
		if got := p.do(http.MethodGet, p.nodes[0]+path+"/none", a, "", ""); got.status != http.StatusNotFound {
			t.Errorf("%s/none is %+v, want 404", path, got)
		}
	}
}

// What was answered is answered so again after a restart, and what was accepted is
// done.
func TestRestartReplays(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "payments.db")
	p := start(t, store, 1)
	before := map[string]answer{}
	for _, path := range routes {
		before[path] = p.until(path, "before-the-restart"+path[1:], http.StatusCreated)
	}
	p.fault(`{"mode": "error_before"}`)
	const waiting = "waits-for-the-restart"
	if got := p.post("/transfers", a, waiting, euro); got.status != http.StatusAccepted {
		t.Errorf("got %+v, want 202", got)
	}
	must(t, p.stop())

	p = start(t, store, 1)
	for _, path := range routes {
		want := before[path]
		want.replayed = true
		if got := p.post(path, a, "before-the-restart"+path[1:], euro); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
	p.until("/transfers", waiting, http.StatusCreated)
	p.once(waiting)
}

func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	for _, o := range []demo.Options{
		{Listen: busy.Addr().String(), Provider: "127.0.0.1:0"},
		{Listen: busy.Addr().String(), Provider: "127.0.0.1:0", Nodes: 2, Node: itself},
		{Listen: "127.0.0.1:0", Provider: busy.Addr().String()},
	} {
		err := demo.Run(t.Context(), o)
		if err == nil || !strings.HasSuffix(err.Error(), "address already in use") {
			t.Errorf("%d nodes on %s, provider on %s: %v", o.Nodes, o.Listen, o.Provider, err)
		}
	}
}
