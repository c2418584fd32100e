package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrNewerSchema says that a newer version of this program has migrated the database to
// a schema that this version cannot work with.
var ErrNewerSchema = errors.New("sqlitestore: the database has a newer schema than this program knows; upgrade the program")

// A migration is one numbered file.
type migration struct {
	version int
	name    string
	sql     string
	// oldest is the schema that a program has to know at least to work on a database with
	// this migration. Zero means this migration's own: an older program is refused.
	oldest int
}

// worksFrom is the line by which a migration declares that programs of an older schema
// can keep working on the database, and can be started on it. Such a migration only
// adds; old programs need not fill what it adds, and the new one understands what they
// write.
var worksFrom = regexp.MustCompile(`(?m)^-- works from (\d+)$`)

func newMigration(version int, name, script string) (m migration, err error) {
	m = migration{version: version, name: name, sql: script}
	if from := worksFrom.FindStringSubmatch(script); from != nil {
		if m.oldest, err = strconv.Atoi(from[1]); err != nil {
			return m, fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return m, nil
}

func allMigrations() ([]migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]migration, 0, len(names)) // Glob returns sorted names
	for _, name := range names {
		base := strings.TrimSuffix(strings.TrimPrefix(name, "migrations/"), ".sql")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", name, err)
		}
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := newMigration(version, base, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

const versionTable = `CREATE TABLE IF NOT EXISTS retrysafe_schema (version INTEGER NOT NULL PRIMARY KEY, oldest INTEGER)`

func insertVersion(m *migration) string {
	oldest := "NULL"
	if m.oldest > 0 {
		oldest = strconv.Itoa(m.oldest)
	}
	return fmt.Sprintf("INSERT INTO retrysafe_schema (version, oldest) VALUES (%d, %s)", m.version, oldest)
}

// PrintMigrations returns all migrations as one script, for other tools. The script
// leaves a new database as [Migrate] does.
func PrintMigrations() (string, error) {
	all, err := allMigrations()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(versionTable + ";\n")
	for _, m := range all {
		fmt.Fprintf(&b, "\n-- %s\n%s%s;\n", m.name, m.sql, insertVersion(&m))
	}
	return b.String(), nil
}

// Migrate brings the database to this program's schema. It is safe when many processes
// start at once, and while others work: each process checks the version again once it
// has the write lock. If there is nothing to migrate, nothing is locked. A database of a
// newer schema is not changed: it is refused with [ErrNewerSchema], unless its
// migrations declare that programs of this schema may work on it.
func Migrate(ctx context.Context, db *sql.DB) error {
	all, err := allMigrations()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return migrateTo(ctx, db, all)
}

// MigrateTx is Migrate in a transaction of the caller's.
func MigrateTx(ctx context.Context, tx *sql.Tx) error {
	all, err := allMigrations()
	if err != nil {
		return err
	}
	return migrate(ctx, tx, all)
}

func migrateTo(ctx context.Context, db *sql.DB, all []migration) error {
	// The first connection to a new file turns the log on. If two connections do so at
	// once, SQLite refuses one of them whatever its busy timeout.
	var have int
	err := retryBusy(ctx, busyTimeout, func() (err error) {
		have, err = version(ctx, db, all)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if have >= all[len(all)-1].version {
		return nil
	}
	own := session{db: db, lend: true}
	if err := own.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error { return migrate(ctx, tx, all) }); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// execer is a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns the version of the database's schema; zero means that there is none.
// A schema newer than all of them is an error, unless its migrations declare that this
// program may work on it.
func version(ctx context.Context, db execer, all []migration) (have int, err error) {
	there, says, err := versionColumns(ctx, db)
	if err != nil || !there {
		return 0, err
	}
	oldest := "version"
	if says {
		oldest = "coalesce(oldest, version)"
	}
	// Needed is the newest schema that a migration unknown to this program requires a
	// program to know.
	var needed int
	newest := all[len(all)-1].version
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version), 0), coalesce(max(`+oldest+`) FILTER (WHERE version > ?), 0) FROM retrysafe_schema`, newest).Scan(&have, &needed); err != nil {
		return 0, err
	}
	if needed > newest {
		return have, fmt.Errorf("%w (it has %d, this knows %d)", ErrNewerSchema, have, newest)
	}
	return have, nil
}

// versionColumns reports whether the table of versions exists, and whether it has the
// column oldest. The first databases did not have it.
func versionColumns(ctx context.Context, db execer) (there, oldest bool, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*) > 0, coalesce(max(name = 'oldest'), 0) FROM pragma_table_info('retrysafe_schema')`).Scan(&there, &oldest)
	return there, oldest, err
}

func migrate(ctx context.Context, db execer, all []migration) error {
	have, err := version(ctx, db, all)
	if err != nil || have >= all[len(all)-1].version {
		return err
	}
	there, oldest, err := versionColumns(ctx, db)
	switch {
	case err != nil:
	case !there:
		_, err = db.ExecContext(ctx, versionTable)
	case !oldest:
		_, err = db.ExecContext(ctx, `ALTER TABLE retrysafe_schema ADD COLUMN oldest INTEGER`)
	}
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.version <= have {
			continue
		}
		if _, err := db.ExecContext(ctx, m.sql); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if _, err := db.ExecContext(ctx, insertVersion(&m)); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}
