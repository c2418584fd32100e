package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Dialect is the SQL of one kind of database.
type Dialect uint8

const (
	DialectPostgres Dialect = iota + 1
	DialectSQLite
	DialectMySQL
)

// versionAndOldest is the number of columns of a table of versions with marks.
const versionAndOldest = 2

// columns returns how many of its columns, version and oldest, the table of versions has. None means that there is no
// table.
func (s *Set) columns(ctx context.Context, db Session) (int, error) {
	if s.Dialect == DialectMySQL {
		return db.QueryInt(ctx, `SELECT count(*) FROM information_schema.COLUMNS
			WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '`+s.Table+`' AND COLUMN_NAME IN ('version', 'oldest')`)
	}
	if s.Dialect == DialectSQLite {
		return db.QueryInt(ctx, "SELECT count(*) FROM pragma_table_info('"+s.Table+"') WHERE name IN ('version', 'oldest')")
	}
	// The catalogue itself: to_regclass may answer from memory, and a process that has waited for the lock must see
	// what the lock's holder has done.
	return db.QueryInt(ctx, `SELECT count(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relname = '`+s.Table+`' AND a.attname IN ('version', 'oldest') AND NOT a.attisdropped
		  AND CASE WHEN $1::text = '' THEN pg_table_is_visible(c.oid) ELSE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text) END`,
		s.Schema)
}

// MySQLLock is the name of the server's lock under which migrations are applied in MySQL, as an SQL expression: one
// for each database. An implementation of [Database] releases it when InTx ends.
const MySQLLock = `CONCAT('retrysafe migrate ', MD5(DATABASE()))`

// mysqlPatience is how many seconds a process waits for others that migrate.
const mysqlPatience = "60"

// lock waits until no other process migrates. In SQLite the transaction itself is the lock.
func (s *Set) lock(ctx context.Context, tx Session) error {
	switch s.Dialect { //nolint:exhaustive // PostgreSQL follows
	case DialectSQLite:
		return nil
	case DialectMySQL:
		got, err := tx.QueryInt(ctx, "SELECT coalesce(GET_LOCK("+MySQLLock+", "+mysqlPatience+"), 0)")
		if err == nil && got != 1 {
			err = errors.New("another process has been migrating for more than " + mysqlPatience + " seconds; try again when it is done")
		}
		return err
	}
	if err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock("+strconv.FormatInt(s.Lock, 10)+")"); err != nil {
		return err
	}
	// While a migration waits for the lock of a table under load, later users of the table wait behind it.
	return tx.Exec(ctx, `SELECT set_config('lock_timeout', '5s', true), set_config('statement_timeout', '0', true)`)
}

func (s *Set) schemaIsMissing(ctx context.Context, tx Session) (bool, error) {
	if s.Schema == "" {
		return false, nil
	}
	n, err := tx.QueryInt(ctx, `SELECT count(*) FROM pg_namespace WHERE nspname = $1::text`, s.Schema)
	return n == 0, err
}

func (s *Set) createSchema() string { return "CREATE SCHEMA IF NOT EXISTS " + quote(s.Schema) }

func (s *Set) createTable() string {
	columns := "version integer NOT NULL PRIMARY KEY"
	if s.Marks {
		columns += ", oldest integer"
	}
	return "CREATE TABLE IF NOT EXISTS " + s.table() + " (" + columns + ")"
}

// insert records that a migration was applied.
func (s *Set) insert(m *Migration) string {
	if !s.Marks {
		return fmt.Sprintf("INSERT INTO %s (version) VALUES (%d)", s.table(), m.Version)
	}
	oldest := "NULL"
	if m.Oldest > 0 {
		oldest = strconv.Itoa(m.Oldest)
	}
	return fmt.Sprintf("INSERT INTO %s (version, oldest) VALUES (%d, %s)", s.table(), m.Version, oldest)
}

// table returns the table of versions as statements name it.
func (s *Set) table() string {
	if s.Schema == "" {
		return s.Table
	}
	return quote(s.Schema) + "." + s.Table
}

func quote(identifier string) string { return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"` }
