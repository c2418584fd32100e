package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A SchemaStatus says how far a database was migrated.
type SchemaStatus struct {
	// Version is the version of the database's schema; zero: there is none. Newest is the
	// newest one that this program knows. Version may be above it.
	Version, Newest int
	// Refused says that this program must not work on the newer schema.
	Refused bool
	// Pending are the names of the migrations that are to be made.
	Pending []string
	// Keys is how many records there are. Beyond 100,000 it is the server's estimate, and
	// Estimated is true.
	Keys      int64
	Estimated bool
}

// ReadStatus returns the status of the database that url names. It changes nothing. Of
// the options, which may be nil, it uses Schema and PgBouncer.
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

// countedRows is how many records are counted. Beyond that the number is an estimate.
const countedRows = 100_000

// rowsOf counts the rows of a table up to countedRows, and then takes the planner's
// estimate, which is -1 for a table that was never analysed.
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
