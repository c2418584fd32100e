package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/migrate"
)

//go:embed migrations/*.sql
var files embed.FS

// ErrNewerSchema says that a newer version of this program has migrated the database to
// a schema that this version cannot work with.
var ErrNewerSchema = errors.New("sqlitestore: the database has a newer schema than this program knows; upgrade the program")

func migrations() (*migrate.Set, error) {
	all, err := migrate.Read(files, "migrations", nil)
	if err != nil {
		return nil, err
	}
	return &migrate.Set{
		Dialect:    migrate.DialectSQLite,
		Table:      "retrysafe_schema",
		Marks:      true,
		Newer:      ErrNewerSchema,
		Migrations: all,
	}, nil
}

// PrintMigrations returns all migrations as one script, for other tools. The script
// leaves a new database as [Migrate] does.
func PrintMigrations() (string, error) {
	set, err := migrations()
	if err != nil {
		return "", err
	}
	return set.Script(), nil
}

// Migrate brings the database to this program's schema. It is safe when many processes
// start at once, and while others work: each process checks the version again once it
// has the write lock. If there is nothing to migrate, nothing is locked. A database of a
// newer schema is not changed: it is refused with [ErrNewerSchema], unless its
// migrations declare that programs of this schema may work on it.
func Migrate(ctx context.Context, db *sql.DB) error {
	set, err := migrations()
	if err == nil {
		err = set.Migrate(ctx, migrationDB{db})
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// MigrateTx is Migrate in a transaction of the caller's.
func MigrateTx(ctx context.Context, tx *sql.Tx) error {
	set, err := migrations()
	if err != nil {
		return err
	}
	return set.MigrateTx(ctx, migrationSession{tx})
}

// execer is a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// migrationSession implements [migrate.Session].
type migrationSession struct{ db execer }

func (s migrationSession) Exec(ctx context.Context, script string) error {
	_, err := s.db.ExecContext(ctx, script)
	return err
}

func (s migrationSession) QueryInt(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

// migrationDB implements [migrate.Database].
type migrationDB struct{ db *sql.DB }

func (d migrationDB) Exec(ctx context.Context, script string) error {
	return migrationSession{d.db}.Exec(ctx, script)
}

// QueryInt tries again while the database is busy. The first connection to a new file
// turns the log on, and SQLite refuses a second one that does so at the same time at
// once, whatever the busy timeout says.
func (d migrationDB) QueryInt(ctx context.Context, query string, args ...any) (n int, err error) {
	err = retryBusy(ctx, busyTimeout, func() (err error) {
		n, err = migrationSession{d.db}.QueryInt(ctx, query, args...)
		return err
	})
	return n, err
}

func (d migrationDB) InTx(ctx context.Context, f func(context.Context, migrate.Session) error) error {
	own := session{db: d.db, lend: true}
	return own.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error { return f(ctx, migrationSession{tx}) })
}
