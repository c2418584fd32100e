package pgstore_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// "Keys have (tenant_id, idempotency_key) as the unique constraint": the database
// itself has one row for a scope and a key, whichever process inserts. That the
// reservation goes by this index is TestPlansUseTheIndexes.
func TestSeed001_DatabaseKeepsKeysUnique(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	must(t, second(s.Create(t.Context(), fresh("k"))))
	const unique = `SELECT string_agg(concat_ws(' ', c.relname, i.indisunique, i.indisvalid, i.indimmediate, i.indpred IS NULL, a.attname), ', ')
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = 'retrysafe_keys'::regclass AND i.indisunique`
	if got := one[string](t, conn, unique); got != "retrysafe_keys_pkey t t t t id" {
		t.Errorf("the unique indexes are %q", got)
	}
	_, err := conn.Exec(t.Context(), `INSERT INTO retrysafe_keys SELECT * FROM retrysafe_keys`)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "23505" {
		t.Errorf("a second row for the key: %v, want that it is refused", err)
	}
	other := fresh("k")
	other.Scope = "another tenant"
	must(t, second(s.Create(t.Context(), other)))
}
