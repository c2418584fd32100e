package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe/internal/migrate"
)

//go:embed migrations/*.sql
var embedded embed.FS

// files are the migrations. A test replaces them.
var files fs.FS = embedded

// ErrNewerSchema says that the database was migrated by a newer version of this program,
// and that this version must not work on it.
var ErrNewerSchema = errors.New("the database has a newer schema than this program knows; upgrade the program")

// migrationsIn returns the migrations of the tables in a schema, or in the search
// path.
func migrationsIn(schema string) (*migrate.Set, error) {
	fill := strings.NewReplacer(slices.Concat(outboxTables(schema), changeTables(schema), readableNames(schema), []string{"{keys}", tableIn(schema), "{step}", qualified(schema, "retrysafe_step")})...)
	all, err := migrate.Read(files, "migrations", fill.Replace)
	if err != nil {
		return nil, err
	}
	return &migrate.Set{
		Dialect:    migrate.DialectPostgres,
		Schema:     schema,
		Table:      "retrysafe_schema",
		Marks:      true,
		Lock:       0x7265747279736166, // "retrysaf"
		Newer:      ErrNewerSchema,
		Migrations: all,
	}, nil
}

// tableIn is the name of the table of keys in a schema, or in the search path.
func tableIn(schema string) string { return qualified(schema, "retrysafe_keys") }

func qualified(schema, name string) string {
	if schema == "" {
		return name
	}
	return pgx.Identifier{schema}.Sanitize() + "." + name
}

// readableNames are the placeholders of the view for people and of its functions, and
// their names.
func readableNames(schema string) []string {
	return []string{
		"{readable}", qualified(schema, "retrysafe_keys_readable"), "{fields_of}", qualified(schema, "retrysafe_fields_of"),
		"{text_of}", qualified(schema, "retrysafe_text_of"), "{time_of}", qualified(schema, "retrysafe_time_of"),
	}
}

// PrintMigrations returns all migrations as one script, for other tools.
func PrintMigrations(schema string) (string, error) {
	set, err := migrationsIn(schema)
	if err != nil {
		return "", err
	}
	return set.Script(), nil
}

// Migrate brings the database to this program's schema, in a transaction of its own. It
// is safe when many processes start at once: one migrates, and the others wait for it. A
// database with a newer schema is not changed: the error is [ErrNewerSchema], unless the
// database says that programs of this schema may work on it. If there is nothing to do,
// no right to change the schema is needed. A server that [Open] refuses is refused.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	err := checkServer(ctx, pool)
	if err == nil {
		err = migrateConn(ctx, pool, schema)
	}
	if err != nil {
		return fmt.Errorf("pgstore: %w", explain(err))
	}
	return nil
}

// migrateConn migrates unless the schema is current already.
func migrateConn(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	set, err := migrationsIn(schema)
	if err != nil {
		return err
	}
	return set.Migrate(ctx, migrationPool{migrationSession{pool}, pool, schema})
}

// MigrateTx is Migrate in a transaction of the caller's, which must be READ
// COMMITTED if several processes may migrate at once.
func MigrateTx(ctx context.Context, tx pgx.Tx, schema string) error {
	err := checkServer(ctx, tx)
	var set *migrate.Set
	if err == nil {
		set, err = migrationsIn(schema)
	}
	if err == nil {
		err = set.MigrateTx(ctx, migrationTx{migrationSession{tx}, tx, schema})
	}
	if err != nil {
		return fmt.Errorf("pgstore: %w", explain(err))
	}
	return nil
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// migrationSession implements [migrate.Session].
type migrationSession struct{ db querier }

func (s migrationSession) Exec(ctx context.Context, script string) error {
	_, err := s.db.Exec(ctx, script)
	return err
}

func (s migrationSession) QueryInt(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.db.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// migrationPool implements [migrate.Database].
type migrationPool struct {
	migrationSession
	pool   *pgxpool.Pool
	schema string
}

func (p migrationPool) InTx(ctx context.Context, f func(context.Context, migrate.Session) error) error {
	mode := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, p.pool, mode, func(tx pgx.Tx) error {
		return f(ctx, migrationTx{migrationSession{tx}, tx, p.schema})
	})
}

// migrationTx is a session that changes the schema.
type migrationTx struct {
	migrationSession
	tx     pgx.Tx
	schema string
}

// errNoDDL says that a role may not change the schema.
var errNoDDL = errors.New("this role may not change the schema")

// Exec executes a script. If the role may not, the error says what its owner has to do.
func (t migrationTx) Exec(ctx context.Context, script string) error {
	err := t.migrationSession.Exec(ctx, script)
	if isCode(err, "42501") {
		return fmt.Errorf("%w: %w; let its owner run what PrintMigrations gives, and then %s", errNoDDL, err, grants(t.schema, t.tx.Conn().Config().User))
	}
	return err
}

// grants are the statements that give a role what the store's steps need.
func grants(schema, role string) string {
	role = pgx.Identifier{role}.Sanitize()
	all := "GRANT SELECT, INSERT, UPDATE, DELETE ON " + tableIn(schema) + ", " + strings.Join(append(outboxNames(schema), changeNames(schema)...), ", ") + " TO " + role + "; GRANT SELECT ON " + qualified(schema, "retrysafe_schema") + " TO " + role
	if schema != "" {
		all = "GRANT USAGE ON SCHEMA " + pgx.Identifier{schema}.Sanitize() + " TO " + role + "; " + all
	}
	return all
}
