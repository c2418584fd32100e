package docs_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Each of the ten queries runs on both databases, and finds what it is there to find.
func TestDocsQueries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("queries.md")
	must(t, err)
	sections := regexp.MustCompile(`(?m)^## \d+\. `).Split(string(text), -1)[1:]
	if len(sections) != 10 {
		t.Fatalf("queries.md has %d queries, want 10", len(sections))
	}
	block := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$")
	for name, db := range map[string]*sql.DB{"PostgreSQL": filledPostgres(t), "SQLite": filledSQLite(t)} {
		for _, section := range sections {
			title, _, _ := strings.Cut(section, "\n")
			found := false
			for _, m := range block.FindAllStringSubmatch(section, -1) {
				if strings.HasPrefix(m[1], "-- ") && !strings.HasPrefix(m[1], "-- "+name+"\n") {
					continue
				}
				found = true
				if rows := count(t, db, m[1]); rows == 0 {
					t.Errorf("%s: %q finds nothing", name, title)
				}
			}
			if !found {
				t.Errorf("%s: %q has no query", name, title)
			}
		}
	}
}

// count returns how many rows a query returns.
func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	must(t, rows.Err())
	return n
}

func filledPostgres(t *testing.T) *sql.DB {
	t.Helper()
	url := testservers.Shared(t)
	s, err := pgstore.Open(t.Context(), url, nil)
	must(t, err)
	defer s.Close()
	fill(t, s)
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), `UPDATE retrysafe_keys SET head = '' WHERE id = (SELECT id FROM retrysafe_keys_readable WHERE key = 'damaged')`)
	must(t, err)
	return db
}

func filledSQLite(t *testing.T) *sql.DB {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	fill(t, s)
	_, err = s.DB().ExecContext(t.Context(), `UPDATE retrysafe_keys SET rec = x'' WHERE hex(id) = (SELECT upper(id) FROM retrysafe_keys_readable WHERE key = 'damaged')`)
	must(t, err)
	return s.DB()
}

// fill stores a key of each kind that the queries look for.
func fill(t *testing.T, s retrysafe.Store) {
	t.Helper()
	create := func(key string, change func(*retrysafe.Write)) {
		w := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "acct_1", Key: key}, Operation: "POST /payments", Version: retrysafe.RecordVersion,
			State: retrysafe.StateInProgress, Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
		}}
		change(&w)
		_, err := s.Create(context.WithoutCancel(t.Context()), w)
		must(t, err)
	}
	create("8e03978e-40d5-43dd-bc93-6894a57f9324", func(w *retrysafe.Write) {
		w.State, w.Result, w.ProviderRef = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}, "ch_17"
	})
	create("failed", func(w *retrysafe.Write) { w.State, w.Result = retrysafe.StateCompleted, &retrysafe.Result{Status: 503} })
	create("unknown", func(w *retrysafe.Write) {
		w.State, w.Reason, w.Attempt = retrysafe.StateUnknown, "the service did not answer", 3
	})
	create("lapsed", func(w *retrysafe.Write) { w.Term = -time.Minute })
	create("damaged", func(*retrysafe.Write) {})
}
