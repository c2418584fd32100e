package journal_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
)

// What the database refuses is an error of the journal, in each step: an operation that looks stored and is not would
// be sent, and never be found again.
func TestSQLTellsOfEachFailure(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*sql.DB) error{
		"the database is closed": func(db *sql.DB) error { return db.Close() },
		"there is no table":      func(db *sql.DB) error { _, err := db.Exec(`DROP TABLE failing`); return err },
		"it only reads":          func(db *sql.DB) error { _, err := db.Exec(`PRAGMA query_only = 1`); return err },
		"what it has is damaged": func(db *sql.DB) error {
			_, err := db.Exec(`UPDATE failing SET operation = '{"unknown":1}'`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			db.SetMaxOpenConns(1) // a pragma holds for a connection
			j, err := journal.NewSQL(db, &journal.SQLOptions{Table: "failing"})
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			op := client.Operation{ID: "order-1", Key: "key", Begun: time.Now()}
			if err := j.CreateTable(ctx); err != nil {
				t.Fatal(err)
			}
			if _, found, err := j.Begin(ctx, op); found || err != nil {
				t.Fatalf("Begin = %v, %v", found, err)
			}
			if err := fail(db); err != nil {
				t.Fatal(err)
			}
			reads, writes := name != "it only reads", name != "what it has is damaged"
			again, other := op, op
			again.Key, other.ID = "another key", "order-2"
			if _, found, err := j.Begin(ctx, again); err == nil {
				t.Errorf("Begin of an operation that is there = %v, nil", found)
			}
			if _, err := j.Operations(ctx); (err != nil) != reads {
				t.Errorf("Operations = %v", err)
			}
			if !writes {
				return
			}
			if _, found, err := j.Begin(ctx, other); err == nil {
				t.Errorf("Begin = %v, nil", found)
			}
			if err := j.End(ctx, op); err == nil {
				t.Error("End = nil")
			}
			if released, err := j.Release(ctx, op); released || err == nil {
				t.Errorf("Release = %v, %v", released, err)
			}
			if err := j.Forget(ctx, op.ID); err == nil {
				t.Error("Forget = nil")
			}
			if err := j.CreateTable(ctx); err == nil && name == "the database is closed" {
				t.Error("CreateTable = nil")
			}
		})
	}
}
