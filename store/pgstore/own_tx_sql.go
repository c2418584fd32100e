package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/sqltx"
)

// ownSQLTx is a transaction of database/sql that the store has begun. With pgx's driver
// it knows whether its caller has ended it by a statement, as [ownTx] does. Otherwise
// what follows would be committed by itself: the answer without its effects.
type ownSQLTx struct {
	*sqltx.Tx
	conn *sql.Conn
}

func beginSQL(ctx context.Context, db *sql.DB) (*ownSQLTx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &ownSQLTx{conn: conn}
	t.Tx, err = sqltx.Begin(ctx, func(ctx context.Context) (*sql.Tx, error) { return conn.BeginTx(ctx, nil) }, t.rollback)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

// endedByCaller reports whether the caller has ended the transaction by a statement.
func (t *ownSQLTx) endedByCaller() (ended bool) {
	_ = t.conn.Raw(func(c any) error {
		if c, ok := c.(interface{ Conn() *pgx.Conn }); ok {
			ended = c.Conn().PgConn().TxStatus() == 'I'
		}
		return nil
	})
	return ended
}

// QueryContext runs a query of the store's.
func (t *ownSQLTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if t.endedByCaller() {
		return nil, t.Explain(sql.ErrTxDone)
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

// Commit commits. If the caller has ended the transaction by a statement, there is
// nothing to commit.
func (t *ownSQLTx) Commit() error {
	if t.endedByCaller() {
		_ = t.Tx.Rollback()
		return sql.ErrTxDone
	}
	defer t.conn.Close()
	return t.Tx.Commit()
}

func (t *ownSQLTx) rollback(tx *sql.Tx) error {
	defer t.conn.Close()
	ended := t.endedByCaller()
	err := tx.Rollback()
	if ended { // it may have been a commit
		return sql.ErrTxDone
	}
	return err
}
