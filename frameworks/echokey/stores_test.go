package echokey_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMain(m *testing.M) { testservers.Main(m) }

// A handler that returns an error is stored and replayed as that error, on the stores
// that outlive the process too: never as an empty 200.
func TestReturnedErrorIsStoredAsTheErrorItIs(t *testing.T) {
	t.Parallel()
	file, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	server, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
	must(t, err)
	t.Cleanup(func() { server.Close() })
	for name, s := range map[string]retrysafe.Store{"SQLite": file, "PostgreSQL": server} {
		b := newBed(t, httpkey.Options{})
		e, err := retrysafe.New(s, nil)
		must(t, err)
		b.guard, err = echokey.New(e, tenant, nil)
		must(t, err)
		b.app.POST("/charges", func(*echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no funds") }, b.guard)
		for i := range 3 {
			got := b.post(t)
			if got.Code != http.StatusPaymentRequired || !strings.Contains(got.Body.String(), "no funds") || (got.Header().Get("Idempotent-Replayed") == "true") != (i > 0) {
				t.Errorf("%s: request %d gets %d %s %v", name, i, got.Code, got.Body, got.Header())
			}
		}
	}
}
