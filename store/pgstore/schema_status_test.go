package pgstore_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

func TestStatusOfADatabase(t *testing.T) {
	t.Parallel()
	for _, o := range []pgstore.Options{{}, {Schema: "else where"}, {PgBouncer: true}} {
		t.Run(fmt.Sprint(o.Schema, o.PgBouncer), func(t *testing.T) {
			t.Parallel()
			url := testservers.Shared(t)
			conn := connect(t, url)
			status := func() pgstore.SchemaStatus {
				t.Helper()
				before := one[*string](t, conn, catalogue)
				got, err := pgstore.ReadStatus(t.Context(), url, &o)
				must(t, err)
				if after := one[*string](t, conn, catalogue); (before == nil) != (after == nil) || before != nil && *before != *after {
					t.Error("ReadStatus has changed the database")
				}
				return got
			}
			got := status()
			newest := got.Newest
			if got.Version != 0 || newest < 2 || len(got.Pending) != newest || !strings.HasPrefix(got.Pending[0], "0001_") || got.Keys != 0 {
				t.Errorf("an empty database: %+v", got)
			}

			s := open(t, url, &o)
			for i := range 3 {
				must(t, second(s.Create(t.Context(), fresh(fmt.Sprint(i)))))
			}
			if got := status(); got.Version != newest || len(got.Pending) != 0 || got.Keys != 3 || got.Estimated {
				t.Errorf("a database with three keys: %+v", got)
			}

			table := pgx.Identifier{cmp.Or(o.Schema, "public"), "retrysafe_schema"}.Sanitize()
			exec(t, conn, `INSERT INTO `+table+` VALUES (99)`)
			if got := status(); got.Version != 99 || got.Newest != newest || len(got.Pending) != 0 || got.Keys != 3 {
				t.Errorf("a newer schema: %+v", got)
			}
		})
	}
}

func TestStatusOfNoDatabase(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	for address, says := range map[string]string{
		"postgres://127.0.0.1:1/x":                     "is the server running",
		strings.Replace(url, "/test_", "/nowhere_", 1): "create the database first",
		"postgres://127.0.0.1:1/x?sslmode=nonsense":    "not one of PostgreSQL",
	} {
		if _, err := pgstore.ReadStatus(t.Context(), address, nil); err == nil || !strings.Contains(err.Error(), says) || slices.Contains([]byte(err.Error()), '\n') {
			t.Errorf("%s: %v, want one line that says %q", address, err, says)
		}
	}
}
