package migrate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/retrysafe/retrysafe/internal/migrate"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// session and database are what a driver adds, here that of database/sql.
type session struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

func (s session) Exec(ctx context.Context, script string) error {
	_, err := s.db.ExecContext(ctx, script)
	return err
}

func (s session) QueryInt(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

type database struct {
	session
	db *sql.DB
}

func (d database) InTx(ctx context.Context, f func(context.Context, migrate.Session) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(ctx, session{tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

var errNewer = errors.New("too new")

// everywhere calls test with an empty database of each kind, and a set of two migrations without marks.
func everywhere(t *testing.T, test func(t *testing.T, db database, set migrate.Set)) {
	t.Helper()
	for name, c := range map[string]struct {
		set  migrate.Set
		open func(t *testing.T) (driver, dsn string)
	}{
		"sqlite":               {migrate.Set{Dialect: migrate.DialectSQLite}, sqlite},
		"postgres":             {migrate.Set{Dialect: migrate.DialectPostgres}, postgres},
		"postgres in a schema": {migrate.Set{Dialect: migrate.DialectPostgres, Schema: `strange "schema"`}, postgres},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver, dsn := c.open(t)
			db, err := sql.Open(driver, dsn)
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			c.set.Table, c.set.Lock, c.set.Newer = "versions", 4711, errNewer
			prefix := ""
			if c.set.Schema != "" {
				prefix = `"strange ""schema"""` + "."
			}
			c.set.Migrations, err = migrate.Read(fstest.MapFS{
				"m/0001_first.sql":  {Data: []byte("CREATE TABLE {t} (a integer);\n")},
				"m/0002_second.sql": {Data: []byte("ALTER TABLE {t} ADD COLUMN b integer; INSERT INTO {t} VALUES (1, 2); -- without a newline")},
				"m/notes.txt":       {Data: []byte("no migration")},
			}, "m", func(s string) string { return strings.ReplaceAll(s, "{t}", prefix+"t") })
			must(t, err)
			test(t, database{session{db}, db}, c.set)
		})
	}
}

func sqlite(t *testing.T) (driver, dsn string) {
	return "sqlite", "file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=busy_timeout(10000)&_txlock=immediate"
}

func postgres(t *testing.T) (driver, dsn string) { return "pgx", testservers.Shared(t) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// versions returns what the table of versions has, as "version oldest" with 0 for none.
func versions(t *testing.T, db database, set *migrate.Set) (list string) {
	t.Helper()
	oldest := "0"
	if set.Marks {
		oldest = "coalesce(oldest, 0)"
	}
	table := set.Table
	if set.Schema != "" {
		table = `"strange ""schema""".` + table
	}
	rows, err := db.db.QueryContext(t.Context(), "SELECT version, "+oldest+" FROM "+table+" ORDER BY version")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var version, oldest int
		must(t, rows.Scan(&version, &oldest))
		list += fmt.Sprintf("%d %d, ", version, oldest)
	}
	must(t, rows.Err())
	return strings.TrimSuffix(list, ", ")
}

// with returns the set of a program that has one migration more.
func with(t *testing.T, set migrate.Set, script string) *migrate.Set {
	t.Helper()
	m, err := migrate.Parse(fmt.Sprintf("%04d_later", set.Newest()+1), script)
	must(t, err)
	set.Migrations = append(set.Migrations[:len(set.Migrations):len(set.Migrations)], m)
	return &set
}

func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, db database, set migrate.Set) {
		status, err := set.Status(t.Context(), db)
		if want := (migrate.Status{Newest: 2, Pending: []string{"0001_first", "0002_second"}}); err != nil || !reflect.DeepEqual(status, want) {
			t.Errorf("an empty database: %+v, %v", status, err)
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if err := set.Migrate(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		must(t, db.InTx(t.Context(), set.MigrateTx)) // nothing is to be done
		if got := versions(t, db, &set); got != "1 0, 2 0" {
			t.Errorf("versions %s", got)
		}
		status, err = set.Status(t.Context(), db)
		if want := (migrate.Status{Version: 2, Newest: 2}); err != nil || !reflect.DeepEqual(status, want) {
			t.Errorf("a migrated database: %+v, %v", status, err)
		}
		later := with(t, set, "SELECT 1;")
		if status, err := later.Status(t.Context(), db); err != nil || !reflect.DeepEqual(status.Pending, []string{"0003_later"}) {
			t.Errorf("with one migration more: %+v, %v", status, err)
		}
	})
}

func TestUnknownMigrations(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, db database, old migrate.Set) {
		must(t, old.Migrate(t.Context(), db)) // the table has no column for marks
		old.Marks = true
		first := with(t, old, "-- works from 2\nSELECT 1;")
		must(t, first.Migrate(t.Context(), db))
		if got := versions(t, db, first); got != "1 0, 2 0, 3 2" {
			t.Errorf("versions %s", got)
		}
		must(t, old.Migrate(t.Context(), db))
		if status, err := old.Status(t.Context(), db); err != nil || status.Version != 3 || status.Refused || status.Pending != nil {
			t.Errorf("%+v, %v", status, err)
		}
		must(t, with(t, *first, "SELECT 1;").Migrate(t.Context(), db))
		for name, migrated := range map[string]func() error{
			"Migrate":   func() error { return old.Migrate(t.Context(), db) },
			"MigrateTx": func() error { return db.InTx(t.Context(), old.MigrateTx) },
		} {
			if err := migrated(); !errors.Is(err, errNewer) || !strings.Contains(err.Error(), "it has 4, this knows 2") {
				t.Errorf("%s = %v", name, err)
			}
		}
		if status, err := old.Status(t.Context(), db); err != nil || status.Version != 4 || !status.Refused {
			t.Errorf("%+v, %v", status, err)
		}
	})
}

// Without a column for marks a migration that is not known is refused.
func TestUnknownMigrationsWithoutMarks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, db database, old migrate.Set) {
		must(t, with(t, old, "-- works from 1\nSELECT 1;").Migrate(t.Context(), db))
		if err := old.Migrate(t.Context(), db); !errors.Is(err, errNewer) {
			t.Errorf("Migrate = %v", err)
		}
	})
}

func TestFailedMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, db database, set migrate.Set) {
		err := with(t, set, "INSERT INTO missing VALUES (1);").Migrate(t.Context(), db)
		if err == nil || !strings.Contains(err.Error(), "0003_later: ") || !strings.Contains(err.Error(), "missing") {
			t.Errorf("Migrate = %v", err)
		}
		if have, err := set.Version(t.Context(), db); have != 0 || err != nil {
			t.Errorf("version %d, %v", have, err)
		}
		must(t, set.Migrate(t.Context(), db))
	})
}

func TestScriptLeavesADatabaseAsMigrateDoes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, db database, set migrate.Set) {
		set.Marks = true
		set = *with(t, set, "-- works from 2\nSELECT 1;")
		must(t, db.Exec(t.Context(), set.Script()))
		must(t, set.Migrate(t.Context(), db))
		if got := versions(t, db, &set); got != "1 0, 2 0, 3 2" {
			t.Errorf("versions %s", got)
		}
	})
}

// The statements that other programs of the same database rely on.
func TestScript(t *testing.T) {
	t.Parallel()
	set := migrate.Set{Dialect: migrate.DialectSQLite, Table: "versions", Migrations: []migrate.Migration{{Version: 1, Name: "0001_x", SQL: "SELECT 1;\n"}}}
	if got, want := set.Script(), `CREATE TABLE IF NOT EXISTS versions (version integer NOT NULL PRIMARY KEY);

-- 0001_x
SELECT 1;
INSERT INTO versions (version) VALUES (1);
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	set.Marks, set.Dialect, set.Schema, set.Migrations[0].Oldest = true, migrate.DialectPostgres, `a"b`, 1
	if got, want := set.Script(), `CREATE SCHEMA IF NOT EXISTS "a""b";
CREATE TABLE IF NOT EXISTS "a""b".versions (version integer NOT NULL PRIMARY KEY, oldest integer);

-- 0001_x
SELECT 1;
INSERT INTO "a""b".versions (version, oldest) VALUES (1, 1);
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReadRefusesWhatHasNoOrder(t *testing.T) {
	t.Parallel()
	text := &fstest.MapFile{Data: []byte("SELECT 1;")}
	for says, files := range map[string]fstest.MapFS{
		"no migrations":        {"m/readme.md": text},
		"keys has no number":   {"m/0001_a.sql": text, "m/keys.sql": text},
		"0001_b does not come": {"m/0001_a.sql": text, "m/0001_b.sql": text},
		"9_b does not come":    {"m/10_a.sql": text, "m/9_b.sql": text},
		"value out of range":   {"m/0001_a.sql": {Data: []byte("-- works from 99999999999999999999\n")}},
	} {
		if _, err := migrate.Read(files, "m", nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Read = %v, want one that says %q", err, says)
		}
	}
	all, err := migrate.Read(fstest.MapFS{"m/0002_b.sql": text, "m/0010_c.sql": text, "m/0001_a.sql": {Data: []byte("-- a\n-- works from 7\n")}}, "m", nil)
	if want := []migrate.Migration{{1, "0001_a", "-- a\n-- works from 7\n", 7}, {2, "0002_b", "SELECT 1;", 0}, {10, "0010_c", "SELECT 1;", 0}}; err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%+v, %v", all, err)
	}
}
