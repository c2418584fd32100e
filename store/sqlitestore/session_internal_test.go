package sqlitestore

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
)

// A session that gives its connection back leaves no prepared statement on it: the
// connection may live as long as the process.
func TestSessionClosesItsStatements(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "keys.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := session{db: db}
	var left map[string]*sql.Stmt
	if err := s.tx(t.Context(), "BEGIN IMMEDIATE", func(ctx context.Context, on execer) error {
		left = s.stmts
		_, err := on.ExecContext(ctx, `CREATE TABLE orders (id TEXT)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil || len(left) == 0 {
		t.Fatalf("close = %v, of %d statements", err, len(left))
	}
	for query, stmt := range left {
		if _, err := stmt.ExecContext(t.Context()); err == nil || err.Error() != "sql: statement is closed" {
			t.Errorf("%s is left on the connection: %v", query, err)
		}
	}
}
