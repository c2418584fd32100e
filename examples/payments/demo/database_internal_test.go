package demo

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// The parameters that are retrysafe's own, not PostgreSQL's, do not reach the server.
func TestStoreURLHasItsParameters(t *testing.T) {
	t.Parallel()
	server, opts, err := postgres("postgres://app@db/app?schema=demo&pgbouncer=true&sslmode=require")
	if err != nil || server != "postgres://app@db/app?sslmode=require" || opts.Schema != "demo" || !opts.PgBouncer {
		t.Errorf("%s, %+v, %v", server, opts, err)
	}
	if err := checkStore("postgres://u:se cret@h/db"); err == nil || !strings.Contains(err.Error(), "%40") || strings.Contains(err.Error(), "cret") {
		t.Errorf("a malformed URL: %v", err)
	}
	url := testservers.Shared(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	if err := prepare(t.Context(), url+separator+"schema=demo"); err != nil {
		t.Errorf("in a schema of its own: %v", err)
	}
}
