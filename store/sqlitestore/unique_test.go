package sqlitestore_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// "Keys have (tenant_id, idempotency_key) as the unique constraint": the database
// itself has one row for a scope and a key, whichever process inserts, and keys are
// found by that index.
func TestSeed001_DatabaseKeepsKeysUnique(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	must(t, second(s.Create(t.Context(), fresh("k"))))
	_, err := s.DB().ExecContext(t.Context(), `INSERT INTO retrysafe_keys (id, due, rec) SELECT id, due, rec FROM retrysafe_keys`)
	if err == nil || !strings.Contains(err.Error(), "UNIQUE constraint failed: retrysafe_keys.id") {
		t.Errorf("a second row for the key: %v, want that it is refused", err)
	}
	var skip any
	var plan string
	must(t, s.DB().QueryRowContext(t.Context(), `EXPLAIN QUERY PLAN SELECT rec FROM retrysafe_keys WHERE id = x'00'`).Scan(&skip, &skip, &skip, &plan))
	if !strings.Contains(plan, "USING INDEX retrysafe_keys_id") {
		t.Errorf("a key is found by %q", plan)
	}
	other := fresh("k")
	other.Scope = "another tenant"
	must(t, second(s.Create(t.Context(), other)))
}
