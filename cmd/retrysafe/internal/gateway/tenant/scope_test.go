package tenant_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

// A document names the tenant as a request would, or none.
func TestScopeOfADocument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, name string
		number     bool
		want       string
	}{
		{"header", "acme", false, "header:acme"}, {"header", "", false, ""}, {"header", "a b", false, ""}, {"header", "a,b", false, ""},
		{"jwt", "acme", false, "jwt:acme"}, {"jwt", "42", true, "jwt-number:42"}, {"jwt", "42", false, "jwt:42"}, {"jwt", "4.2", true, ""}, {"jwt", "", false, ""},
		{"none", "", false, "none"}, {"bearer", "token", false, ""}, {"", "acme", false, ""},
	} {
		if got, ok := tenant.ScopeOf(c.from, c.name, c.number); got != c.want || ok != (c.want != "") {
			t.Errorf("ScopeOf(%q, %q, %v) = %q, %v; want %q", c.from, c.name, c.number, got, ok, c.want)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("X-Tenant-Id", "acme")
	scope, err := tenant.Header("X-Tenant-Id", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})(r)
	if want, _ := tenant.ScopeOf("header", "acme", false); err != nil || scope != want {
		t.Errorf("a request has the scope %q, %v; a document %q", scope, err, want)
	}
	if scope, err := tenant.None()(r); err != nil || scope != "none" {
		t.Errorf("%q, %v", scope, err)
	}
}
