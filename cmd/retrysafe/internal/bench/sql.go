package bench

import (
	"context"
	"database/sql"
	"fmt"
)

// sqlDB is a database of package database/sql: MySQL by the pool that the store has for
// transactions, or SQLite by a connection of its own.
type sqlDB struct {
	*sql.DB
	own bool // it is closed with the loop
}

var (
	mysqlSchema = []string{
		`CREATE TABLE bare (id VARBINARY(64) NOT NULL PRIMARY KEY, scope VARBINARY(64) NOT NULL, operation VARBINARY(64) NOT NULL, fingerprint BINARY(32) NOT NULL, status SMALLINT, body BLOB) ENGINE = InnoDB`,
		`CREATE TABLE payments (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, account VARCHAR(64) NOT NULL, amount BIGINT NOT NULL) ENGINE = InnoDB`,
	}
	sqliteSchema = []string{
		`CREATE TABLE bare (id TEXT PRIMARY KEY, scope TEXT NOT NULL, operation TEXT NOT NULL, fingerprint BLOB NOT NULL, status INTEGER, body BLOB) WITHOUT ROWID`,
		`CREATE TABLE payments (id INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL)`,
	}
)

func newSQL(ctx context.Context, db *sql.DB, schema []string) (*sqlDB, error) {
	for _, create := range schema {
		if _, err := db.ExecContext(ctx, create); err != nil {
			return nil, fmt.Errorf("create the tables of the bare loop: %w", err)
		}
	}
	return &sqlDB{DB: db}, nil
}

func (d *sqlDB) insert(ctx context.Context, n int64) error {
	c := newCall(n)
	_, err := d.ExecContext(ctx, `INSERT INTO bare (id, scope, operation, fingerprint) VALUES (?, ?, ?, ?)`, c.Key, c.Scope, c.Operation, c.Fingerprint.Sum[:])
	return err
}

func (d *sqlDB) update(ctx context.Context, n int64) error {
	_, err := d.ExecContext(ctx, `UPDATE bare SET status = ?, body = ? WHERE id = ?`, answer.Status, answer.Body, keyOf(n))
	return err
}

func (d *sqlDB) roundTrip(ctx context.Context) error {
	var one int
	return d.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
}

func (d *sqlDB) close(context.Context) error {
	if !d.own {
		return nil
	}
	return d.Close()
}

// pay is the effect of an operation: one row.
func pay(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO payments (account, amount) VALUES (?, ?)`, payer, amount)
	return err
}
