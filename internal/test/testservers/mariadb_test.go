package testservers_test

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func openMariaDB(t *testing.T, m *testservers.MariaDB) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", m.DSN("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestMariaDBKeepsWhatWasCommittedWhenItIsKilled(t *testing.T) {
	t.Parallel()
	m := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true})
	db := openMariaDB(t, m)
	for _, statement := range []string{"CREATE TABLE t (n int PRIMARY KEY)", "INSERT INTO t VALUES (7)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, killed := range []bool{true, false} { // the second restart is an orderly one
		if killed {
			if err := m.Kill(); err != nil {
				t.Fatal(err)
			}
			portIsKept(t, m.Addr())
		}
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := openMariaDB(t, m).QueryRowContext(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 7 {
			t.Errorf("after a restart the row is %d, %v; want 7", n, err)
		}
	}
}

func TestABadMariaDBSettingIsAnErrorWithItsWords(t *testing.T) {
	t.Parallel()
	_, err := testservers.StartMariaDB(t.Context(), &testservers.MariaDBOptions{InMemory: true, Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error does not say what MariaDB said: %v", err)
	}
}
