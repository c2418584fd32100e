package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var embedded embed.FS

// files are the migrations. A test replaces them.
var files fs.FS = embedded

// ErrNewerSchema says that the database was migrated by a newer version of this program,
// and that this version must not work on it.
var ErrNewerSchema = errors.New("the database has a newer schema than this program knows; upgrade the program")

// A migration is one numbered file.
type migration struct {
	version int
	name    string
	sql     string
	// oldest is the oldest schema that a program must know to work on a database with this
	// migration. Zero: a program that does not know this migration is refused.
	oldest int
}

// worksFrom is the line by which a migration says that programs which do not know it may
// go on, and may be started again. Such a migration only adds; older programs need not
// fill what it adds, and it understands what they write.
var worksFrom = regexp.MustCompile(`(?m)^-- works from (\d+)$`)

func migrationsOf(files fs.FS, schema string) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	fill := strings.NewReplacer(append(outboxTables(schema), "{keys}", tableIn(schema), "{step}", qualified(schema, "retrysafe_step"))...)
	all := make([]migration, 0, len(names)) // Glob returns them in order
	for _, name := range names {
		base := strings.TrimSuffix(strings.TrimPrefix(name, "migrations/"), ".sql")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		m := migration{version: version, name: base, sql: fill.Replace(string(text))}
		if from := worksFrom.FindStringSubmatch(m.sql); from != nil {
			if m.oldest, err = strconv.Atoi(from[1]); err != nil {
				return nil, fmt.Errorf("migration %s: %w", name, err)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// tableIn is the name of the table of keys in a schema, or in the search path.
func tableIn(schema string) string { return qualified(schema, "retrysafe_keys") }

func qualified(schema, name string) string {
	if schema == "" {
		return name
	}
	return pgx.Identifier{schema}.Sanitize() + "." + name
}

// PrintMigrations returns all migrations as one script, for other tools.
func PrintMigrations(schema string) (string, error) {
	all, err := migrationsOf(files, schema)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if schema != "" {
		b.WriteString("CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{schema}.Sanitize() + ";\n")
	}
	b.WriteString(versionTable(schema) + ";\n\n")
	for _, m := range all {
		fmt.Fprintf(&b, "-- %s\n%s\n%s;\n\n", m.name, m.sql, insertVersion(schema, &m))
	}
	return b.String(), nil
}

func versionTable(schema string) string {
	return "CREATE TABLE IF NOT EXISTS " + qualified(schema, "retrysafe_schema") + " (version integer NOT NULL PRIMARY KEY, oldest integer)"
}

func insertVersion(schema string, m *migration) string {
	oldest := "NULL"
	if m.oldest > 0 {
		oldest = strconv.Itoa(m.oldest)
	}
	return fmt.Sprintf("INSERT INTO %s (version, oldest) VALUES (%d, %s)", qualified(schema, "retrysafe_schema"), m.version, oldest)
}

// Migrate brings the database to this program's schema, in a transaction of its own. It
// is safe when many processes start at once: one migrates, and the others wait for it. A
// database with a newer schema is not changed: the error is [ErrNewerSchema], unless the
// database says that programs of this schema may work on it. If there is nothing to do,
// no right to change the schema is needed.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if err := migrateConn(ctx, pool, schema); err != nil {
		return fmt.Errorf("pgstore: %w", explain(err))
	}
	return nil
}

// migrateConn migrates unless the schema is current already.
func migrateConn(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	newest, have, err := versions(ctx, pool, schema)
	if err != nil || have >= newest {
		return err
	}
	// A transaction that has waited for the lock must see what its holder has committed.
	mode := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, pool, mode, func(tx pgx.Tx) error { return migrateTx(ctx, tx, schema) })
}

// MigrateTx is [Migrate] in a transaction of the caller's. It must be READ COMMITTED if
// several processes may migrate at once.
func MigrateTx(ctx context.Context, tx pgx.Tx, schema string) error {
	if err := migrateTx(ctx, tx, schema); err != nil {
		return fmt.Errorf("pgstore: %w", explain(err))
	}
	return nil
}

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// versions returns the newest version that this program knows, and the database's.
// One that is newer, and does not say that this program may work on it, is an error.
func versions(ctx context.Context, db querier, schema string) (newest, have int, err error) {
	all, err := migrationsOf(files, schema)
	if err != nil {
		return 0, 0, err
	}
	newest = all[len(all)-1].version
	table := qualified(schema, "retrysafe_schema")
	var there bool
	// The catalogue itself: to_regclass may answer from memory, and a transaction that has
	// waited for the lock must see what its holder has committed.
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class
		WHERE relname = 'retrysafe_schema' AND CASE WHEN $1 = '' THEN pg_table_is_visible(oid) ELSE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) END)`,
		schema).Scan(&there); err != nil {
		return newest, 0, err
	}
	if !there {
		return newest, 0, nil
	}
	// Needed is the newest schema that a migration unknown to this program asks it to know.
	// The first databases had no column for it.
	var needed int
	if err := db.QueryRow(ctx, `SELECT coalesce(max(version), 0), coalesce(max(coalesce((to_jsonb(s) ->> 'oldest')::int, version)) FILTER (WHERE version > `+strconv.Itoa(newest)+`), 0)
		FROM `+table+` s`).Scan(&have, &needed); err != nil {
		return newest, 0, fmt.Errorf("read schema version: %w", err)
	}
	if needed > newest {
		return newest, have, fmt.Errorf("%w (it has %d, this knows %d)", ErrNewerSchema, have, newest)
	}
	return newest, have, nil
}

// migrationLock is the key of the advisory lock under which a schema is changed.
const migrationLock = 0x7265747279736166 // "retrysaf"

func migrateTx(ctx context.Context, tx pgx.Tx, schema string) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
		return err
	}
	// Statements of other sessions queue behind this wait for a table under load, so it is
	// short.
	if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', '5s', true), set_config('statement_timeout', '0', true)`); err != nil {
		return err
	}
	_, have, err := versions(ctx, tx, schema)
	if err != nil {
		return err
	}
	all, err := migrationsOf(files, schema)
	if err != nil {
		return err
	}
	if schema != "" {
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regnamespace($1) IS NOT NULL`, pgx.Identifier{schema}.Sanitize()).Scan(&there); err != nil {
			return err
		}
		if !there {
			if err := ddl(ctx, tx, schema, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
				return err
			}
		}
	}
	switch newest := all[len(all)-1].version; {
	case have == 0:
		err = ddl(ctx, tx, schema, versionTable(schema))
	case have < newest:
		err = ddl(ctx, tx, schema, "ALTER TABLE "+qualified(schema, "retrysafe_schema")+" ADD COLUMN IF NOT EXISTS oldest integer")
	}
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.version <= have {
			continue
		}
		if err := ddl(ctx, tx, schema, m.sql); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if err := ddl(ctx, tx, schema, insertVersion(schema, &m)); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// errNoDDL says that a role may not change the schema.
var errNoDDL = errors.New("this role may not change the schema")

// ddl changes the schema. If the role has no right to, the error names the grants it
// needs.
func ddl(ctx context.Context, tx pgx.Tx, schema, sql string) error {
	_, err := tx.Exec(ctx, sql)
	if isCode(err, "42501") {
		return fmt.Errorf("%w: %w; let its owner run what PrintMigrations gives, and then %s", errNoDDL, err, grants(schema, tx.Conn().Config().User))
	}
	return err
}

// grants are the statements that give a role what the store's steps need.
func grants(schema, role string) string {
	role = pgx.Identifier{role}.Sanitize()
	all := "GRANT SELECT, INSERT, UPDATE, DELETE ON " + tableIn(schema) + ", " + strings.Join(outboxNames(schema), ", ") + " TO " + role + "; GRANT SELECT ON " + qualified(schema, "retrysafe_schema") + " TO " + role
	if schema != "" {
		all = "GRANT USAGE ON SCHEMA " + pgx.Identifier{schema}.Sanitize() + " TO " + role + "; " + all
	}
	return all
}
