package mysqlstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// A pool whose sessions would cut values off, or see old snapshots, is refused with the
// setting and the remedy.
func TestSettingsThatLoseDataAreRefused(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	for params, want := range map[string]string{
		"": "tx_isolation=%27READ-COMMITTED%27",
		"?tx_isolation=%27READ-COMMITTED%27&sql_mode=%27%27": "add STRICT_TRANS_TABLES",
		"?tx_isolation=%27READ-COMMITTED%27&autocommit=0":    "autocommit is off",
		"?tx_isolation=%27SERIALIZABLE%27":                   "SERIALIZABLE",
		"?tx_isolation=%27READ-UNCOMMITTED%27":               "READ-UNCOMMITTED",
	} {
		s, err := mysqlstore.New(t.Context(), connect(t, dsn+params), nil)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want an error with %q", params, err, want)
		}
	}
	server := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: true, Settings: map[string]string{"innodb_rollback_on_timeout": "ON", "default_storage_engine": "MyISAM"}})
	if _, err := mysqlstore.Open(t.Context(), server.DSN("test"), nil); err == nil || !strings.Contains(err.Error(), "innodb_rollback_on_timeout") {
		t.Errorf("a server that rolls back silently: %v", err)
	}
	for _, dsn := range []string{"", "root@tcp(127.0.0.1:1)/", "::"} {
		if _, err := mysqlstore.Open(t.Context(), dsn, nil); err == nil || !strings.Contains(err.Error(), "user:password@tcp(host:port)/database") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
	if _, err := mysqlstore.Open(t.Context(), dsn+"?tsl=true", nil); err == nil || !strings.Contains(err.Error(), "is one misspelt?") {
		t.Errorf("a parameter that is misspelt: %v", err)
	}
	if _, err := mysqlstore.Open(t.Context(), "root@tcp("+addrOf(t, dsn)+")/absent", nil); err == nil || !strings.Contains(err.Error(), "create the database first") {
		t.Errorf("a database that does not exist: %v", err)
	}
	if _, err := mysqlstore.Open(t.Context(), dsn, &mysqlstore.Options{MaxBatch: -1}); err == nil {
		t.Error("a negative option is taken")
	}
}

// A store that is not to migrate opens only where others have.
func TestOpensWithoutMigratingOnlyWhereTheTablesAre(t *testing.T) {
	t.Parallel()
	dsn, skip := testservers.SharedMariaDB(t), &mysqlstore.Options{SkipMigrations: true}
	for what, spoil := range map[string]string{"no tables": `DO 0`, "an old table": `CREATE TABLE retrysafe_keys (id BINARY(16) PRIMARY KEY) ENGINE = InnoDB`} {
		exec(t, connect(t, dsn), spoil)
		if _, err := mysqlstore.Open(t.Context(), dsn, skip); err == nil || !strings.Contains(err.Error(), "run the migrations") {
			t.Errorf("%s: %v", what, err)
		}
		exec(t, connect(t, dsn), `DROP TABLE IF EXISTS retrysafe_keys`)
	}
	must(t, mysqlstore.Migrate(t.Context(), connect(t, dsn)))
	s, err := mysqlstore.Open(t.Context(), dsn, skip)
	must(t, err)
	must(t, s.Close())
}

// The driver may count matched rows or changed ones: the store does not depend on it.
func TestFoundRowsDoNotMatter(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t)+"?clientFoundRows=true", nil)
	rec, err := s.Create(t.Context(), fresh("key"))
	must(t, err)
	for range 3 { // the same write again and again changes the revision
		w := rec.Update()
		w.Term = time.Minute
		next, err := s.Swap(t.Context(), w)
		must(t, err)
		if next.Revision <= rec.Revision {
			t.Errorf("revision %d after %d", next.Revision, rec.Revision)
		}
		rec = next
	}
	if _, err := s.Swap(t.Context(), done(rec, "answer")); err != nil {
		t.Error(err)
	}
	if got, err := s.Load(t.Context(), rec.Ref); err != nil || got.State != retrysafe.StateCompleted {
		t.Errorf("%v, %v", got.State, err)
	}
}

// Many processes that start at once migrate once, and a database of a newer schema is
// refused.
func TestMigrateAtOnceAndRefuseNewer(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := mysqlstore.Open(t.Context(), dsn, nil)
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range 4 {
		must(t, <-errs)
	}
	status, err := mysqlstore.ReadStatus(t.Context(), dsn)
	if err != nil || status.Version != status.Newest || len(status.Pending) != 0 {
		t.Errorf("%+v, %v", status, err)
	}
	exec(t, connect(t, dsn), `INSERT INTO retrysafe_schema (version) VALUES (99)`)
	if _, err := mysqlstore.Open(t.Context(), dsn, nil); err == nil || !strings.Contains(err.Error(), "newer schema") {
		t.Errorf("a newer schema: %v", err)
	}
}
