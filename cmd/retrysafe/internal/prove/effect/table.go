package effect

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The statements of the table of effects, in any SQL database. It has no unique
// constraint: a second effect of a key must be seen.
const (
	CreateTable = `CREATE TABLE IF NOT EXISTS %s (key TEXT NOT NULL, by TEXT NOT NULL)`
	Insert      = `INSERT INTO %s (key, by) VALUES ($1, $2)`
	Select      = `SELECT key, by FROM %s`
)

// A Table is the table of effects in a PostgreSQL database. By names the attempt that
// had the effect.
type Table struct{ name string }

// TableIn returns the table of a schema; the empty one is the connection's default.
func TableIn(schema string) Table {
	if schema == "" {
		return Table{"effects"}
	}
	return Table{pgx.Identifier{schema, "effects"}.Sanitize()}
}

// An execer is a pool, a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Create creates the table unless it is there. Two processes that create it at the
// same time would fail, so it takes a lock for the statement's transaction.
func (t Table) Create(ctx context.Context, db execer) error {
	const locked = `DO $do$ BEGIN PERFORM pg_advisory_xact_lock(723654123); %s; END $do$`
	if _, err := db.Exec(ctx, fmt.Sprintf(locked, fmt.Sprintf(CreateTable, t.name))); err != nil {
		return fmt.Errorf("create the table of effects: %w", err)
	}
	return nil
}

// Insert adds an effect of a key.
func (t Table) Insert(ctx context.Context, db execer, key, by string) error {
	_, err := db.Exec(ctx, fmt.Sprintf(Insert, t.name), key, by)
	return err
}

// All returns, for each key, which attempts have had an effect.
func (t Table) All(ctx context.Context, db querier) (map[string][]string, error) {
	return read(ctx, db, fmt.Sprintf(Select, t.name))
}

// Of returns which attempts have had an effect of one key.
func (t Table) Of(ctx context.Context, db querier, key string) ([]string, error) {
	all, err := read(ctx, db, fmt.Sprintf(Select+` WHERE key = $1`, t.name), key)
	return all[key], err
}

func read(ctx context.Context, db querier, query string, args ...any) (map[string][]string, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the effects: %w", err)
	}
	all := map[string][]string{}
	var key, by string
	if _, err := pgx.ForEachRow(rows, []any{&key, &by}, func() error {
		all[key] = append(all[key], by)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the effects: %w", err)
	}
	return all, nil
}
