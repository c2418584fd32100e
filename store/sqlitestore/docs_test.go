package sqlitestore_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

const page = "../../docs/sqlite.md"

// blocks returns the blocks of code of the page in one language.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s has no %s; this test looks in the wrong place", page, language)
	}
	return found
}

// Every statement of docs/sqlite.md runs, and the backup that it takes is one.
func TestDocsStatementsRun(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	put(t, s, "k")
	backup := filepath.Join(t.TempDir(), "backup.db")
	taken := false
	for _, statement := range blocks(t, "sql") {
		taken = taken || strings.Contains(statement, "'backup.db'")
		exec(t, s.DB(), strings.ReplaceAll(statement, "'backup.db'", "'"+backup+"'"))
	}
	if !taken {
		t.Fatalf("%s takes no backup", page)
	}
	if got, err := open(t, backup).Load(t.Context(), keyed("k").Ref); err != nil || got.Result == nil {
		t.Errorf("the backup has %+v, %v", got, err)
	}
}

// Every Go snippet of docs/sqlite.md is part of an example, and so compiles and
// does what it says.
func TestDocsSnippetsAreExamples(t *testing.T) {
	t.Parallel()
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	for _, block := range blocks(t, "go") {
		if !strings.Contains(plain(string(source)), plain(block)) {
			t.Errorf("%s shows code that is in no example:\n%s", page, block)
		}
	}
}

// Every setting of the DSN is on the page with its reason, and is what a
// connection has.
func TestDocsSettingsAreTheDSNs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	must(t, err)
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "keys.db")))
	must(t, err)
	defer db.Close()
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "wal_autocheckpoint": "4000", "foreign_keys": "1",
	} {
		if got := one[string](t, db, `PRAGMA `+pragma); got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
		if !strings.Contains(string(text), "| `"+pragma+"=") {
			t.Errorf("%s does not give a reason for %s", page, pragma)
		}
	}
}
