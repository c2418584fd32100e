package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A SchemaStatus is how far a database was migrated.
type SchemaStatus struct {
	// Version is that of the database's schema; zero is none. It may be above
	// Newest, the newest that this program knows.
	Version, Newest int
	// Refused says that the schema is newer, and that this program must not work on it.
	Refused bool
	// Pending are the migrations that are still to be made, by their names.
	Pending []string
	// Keys is how many records there are. Beyond a hundred thousand they are not
	// counted: Estimated says that it is the server's own guess.
	Keys      int64
	Estimated bool
}

// ReadStatus returns how the database that url names stands. It changes nothing. Of
// the options, which may be nil, Schema and PgBouncer count.
func ReadStatus(ctx context.Context, url string, opts *Options) (SchemaStatus, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	s, err := readStatus(ctx, url, o)
	if err != nil {
		return s, fmt.Errorf("pgstore: %w", explain(err))
	}
	return s, nil
}

func readStatus(ctx context.Context, url string, o Options) (s SchemaStatus, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return s, fmt.Errorf("the store's URL is not one of PostgreSQL: %w", err)
	}
	if o.PgBouncer {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	set, err := migrationsIn(o.Schema)
	if err != nil {
		return s, err
	}
	schema, err := set.Status(ctx, migrationSession{conn})
	s.Version, s.Newest, s.Refused, s.Pending = schema.Version, schema.Newest, schema.Refused, schema.Pending
	if err != nil || s.Version == 0 {
		return s, err
	}
	s.Keys, s.Estimated, err = rowsOf(ctx, conn, tableIn(o.Schema))
	return s, err
}

// countedRows is how many records are counted one by one.
const countedRows = 100_000

// rowsOf counts as far as that is cheap, and then takes the planner's word. It
// is -1 for a table that was never analysed.
func rowsOf(ctx context.Context, db querier, table string) (n int64, estimated bool, err error) {
	if err := db.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT FROM %s LIMIT %d) k`, table, countedRows+1)).Scan(&n); err != nil {
		return 0, false, err
	}
	if n <= countedRows {
		return n, false, nil
	}
	var guess int64
	err = db.QueryRow(ctx, `SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1)`, table).Scan(&guess)
	return max(n, guess), true, err
}
