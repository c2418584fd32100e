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

// PrintMigrations returns the schema as one script, for other tools.
func PrintMigrations() (string, error) {
	all, err := allMigrations()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "-- %s\n%s\n", m.name, m.sql)
	}
	return b.String(), nil
}

// Migrate brings the database to this program's schema. It is safe when many
// processes start at once: each looks again once it holds the write lock. A
// database of a newer schema is refused, and nothing is changed.
func Migrate(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := migrate(ctx, conn); err != nil {
		_, rollback := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(fmt.Errorf("migrate: %w", err), rollback)
	}
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "COMMIT"); err != nil {
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

// MigrateTx is Migrate in a transaction of the caller's.
func MigrateTx(ctx context.Context, tx *sql.Tx) error { return migrate(ctx, tx) }

func migrate(ctx context.Context, db execer) error {
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS retrysafe_schema (version INTEGER NOT NULL PRIMARY KEY)`); err != nil {
		return err
	}
	var have sql.NullInt64
	if err := db.QueryRowContext(ctx, `SELECT max(version) FROM retrysafe_schema`).Scan(&have); err != nil {
		return err
	}
	all, err := allMigrations()
	if err != nil {
		return err
	}
	if newest := all[len(all)-1].version; int(have.Int64) > newest {
		return fmt.Errorf("%w (it has %d, this knows %d)", ErrNewerSchema, have.Int64, newest)
	}
	for _, m := range all {
		if m.version <= int(have.Int64) {
			continue
		}
		if _, err := db.ExecContext(ctx, m.sql); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO retrysafe_schema VALUES (?)`, m.version); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}
