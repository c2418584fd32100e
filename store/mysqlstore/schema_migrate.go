package mysqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe/internal/migrate"
)

//go:embed migrations/*.sql
var files embed.FS

// ErrNewerSchema says that a newer version of this program has migrated the database to
// a schema that this version cannot work with.
var ErrNewerSchema = errors.New("mysqlstore: the database has a newer schema than this program knows; upgrade the program")

func migrations() (*migrate.Set, error) {
	all, err := migrate.Read(files, "migrations", nil)
	if err != nil {
		return nil, err
	}
	return &migrate.Set{
		Dialect:    migrate.DialectMySQL,
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
// start at once, and while others work: migrations run under a lock of the server's. The
// server commits each change of the schema by itself, so a migration that was interrupted
// is partly applied; every statement of one can be applied again, and the next Migrate
// does. A database of a newer schema is not changed: it is refused with [ErrNewerSchema],
// unless its migrations declare that programs of this schema may work on it.
func Migrate(ctx context.Context, db *sql.DB) error {
	set, err := migrations()
	if err == nil {
		err = set.Migrate(ctx, migrationDB{db})
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", explain(err))
	}
	return nil
}

// newerSchema returns ErrNewerSchema if a newer program has migrated the database since
// the store was opened.
func newerSchema(ctx context.Context, db *sql.DB) error {
	set, err := migrations()
	if err != nil {
		return nil //nolint:nilerr // the caller reports the error that it explains
	}
	if _, err := set.Version(ctx, migrationSession{db}); errors.Is(err, ErrNewerSchema) {
		return err
	}
	return nil
}

// migrationSession implements [migrate.Session].
type migrationSession struct{ db execer }

// Exec runs the statements of a script one by one: a pool of the caller's may not take
// several at once. No text in a migration has a semicolon at the end of a line.
func (s migrationSession) Exec(ctx context.Context, script string) error {
	for text := range strings.SplitSeq(script, ";\n") {
		if text = withoutComments(text); text == "" {
			continue
		}
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// withoutComments returns a statement without the lines that are comments.
func withoutComments(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "")), ";")
}

func (s migrationSession) QueryInt(ctx context.Context, query string, args ...any) (n int, err error) {
	found := false
	err = runOn(ctx, s.db, statement{sql: query, args: args, each: func(scan func(...any) error) error {
		found = true
		return scan(&n)
	}})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return n, err
}

// migrationDB implements [migrate.Database].
type migrationDB struct{ db *sql.DB }

func (d migrationDB) Exec(ctx context.Context, script string) error {
	return migrationSession{d.db}.Exec(ctx, script)
}

func (d migrationDB) QueryInt(ctx context.Context, query string, args ...any) (int, error) {
	return migrationSession{d.db}.QueryInt(ctx, query, args...)
}

// InTx calls f with one connection, which keeps the lock of the migrations. There is no
// transaction: the server would commit it with the first change of the schema.
func (d migrationDB) InTx(ctx context.Context, f func(context.Context, migrate.Session) error) error {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = f(ctx, migrationSession{conn})
	if _, release := conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK(`+migrate.MySQLLock+`)`); release != nil {
		discard(ctx, conn, release)
	}
	return err
}
