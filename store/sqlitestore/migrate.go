package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrNewerSchema says that the database was migrated by a newer version of this
// program.
var ErrNewerSchema = errors.New("sqlitestore: the database has a newer schema than this program knows; upgrade the program")

// A migration is one numbered file.
type migration struct {
	version int
	name    string
	sql     string
}

func allMigrations() ([]migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]migration, 0, len(names)) // Glob returns them in order
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
		all = append(all, migration{version, base, string(text)})
	}
	return all, nil
}

const (
	versionTable  = `CREATE TABLE IF NOT EXISTS retrysafe_schema (version INTEGER NOT NULL PRIMARY KEY)`
	insertVersion = `INSERT INTO retrysafe_schema VALUES (%d)`
)

// PrintMigrations returns the schema as one script, for other tools. It leaves the
// database as [Migrate] does.
func PrintMigrations() (string, error) {
	all, err := allMigrations()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(versionTable + ";\n")
	for _, m := range all {
		fmt.Fprintf(&b, "\n-- %s\n%s"+insertVersion+";\n", m.name, m.sql, m.version)
	}
	return b.String(), nil
}

// Migrate brings the database to this program's schema. It is safe when many
// processes start at once, and while others work: each looks again once it has the
// write lock. One that has nothing to do locks nothing. A database of a newer
// schema is refused, and nothing is changed.
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
	// The first connection to a new file turns the log on. SQLite refuses at once
	// whoever does so beside another, whatever the busy timeout says.
	var have int
	err := patiently(ctx, busyTimeout, func() (err error) {
		have, err = version(ctx, db, all)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if have == all[len(all)-1].version {
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

// version returns the version of the database's schema; zero is none. One that is
// newer than all is an error.
func version(ctx context.Context, db execer, all []migration) (have int, err error) {
	there := false
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'retrysafe_schema')`).Scan(&there); err != nil || !there {
		return 0, err
	}
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM retrysafe_schema`).Scan(&have); err != nil {
		return 0, err
	}
	if newest := all[len(all)-1].version; have > newest {
		return have, fmt.Errorf("%w (it has %d, this knows %d)", ErrNewerSchema, have, newest)
	}
	return have, nil
}

func migrate(ctx context.Context, db execer, all []migration) error {
	have, err := version(ctx, db, all)
	if err != nil {
		return err
	}
	if have == 0 {
		if _, err := db.ExecContext(ctx, versionTable); err != nil {
			return err
		}
	}
	for _, m := range all {
		if m.version <= have {
			continue
		}
		if _, err := db.ExecContext(ctx, m.sql); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if _, err := db.ExecContext(ctx, fmt.Sprintf(insertVersion, m.version)); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}
