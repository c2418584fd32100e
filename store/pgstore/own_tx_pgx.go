package pgstore

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var _ pgx.Tx = (*ownTx)(nil)

// Begin starts a nested transaction, by a savepoint.
func (t *ownTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.driver(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Begin(ctx)
}

// driver returns the transaction as the driver's own type, for what only the driver can
// do inside of it. It is never committed or rolled back by itself.
func (t *ownTx) driver(ctx context.Context) (pgx.Tx, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	if t.inner == nil {
		inner, err := t.conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: "SELECT"}) // it has begun
		if err != nil {
			return nil, err
		}
		t.inner = inner
	}
	return t.inner, nil
}

// Exec implements [pgx.Tx].
func (t *ownTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.conn.Exec(ctx, sql, args...)
	t.left = t.left || ends(tag, sql)
	return tag, err
}

// ends reports whether a statement has ended its transaction. COMMIT AND CHAIN leaves another
// one open, so the state of the connection does not show it.
func ends(tag pgconn.CommandTag, sql string) bool {
	switch tag.String() {
	case "COMMIT":
		return true
	case "ROLLBACK":
		return !strings.Contains(strings.ToLower(strings.Join(strings.Fields(sql), " ")), " to ") // a savepoint
	default:
		return false
	}
}

// Query implements [pgx.Tx].
func (t *ownTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Conn().Query(ctx, sql, args...)
}

// QueryRow implements [pgx.Tx].
func (t *ownTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return failedRow{err}
	}
	return t.conn.Conn().QueryRow(ctx, sql, args...)
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// SendBatch implements [pgx.Tx].
func (t *ownTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.start(ctx); err != nil {
		return failedBatch{err}
	}
	return t.conn.Conn().SendBatch(ctx, b)
}

type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRow(b) }
func (b failedBatch) Close() error                     { return b.err }

// CopyFrom implements [pgx.Tx].
func (t *ownTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.start(ctx); err != nil {
		return 0, err
	}
	return t.conn.Conn().CopyFrom(ctx, table, columns, src)
}

// Prepare implements [pgx.Tx].
func (t *ownTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Conn().Prepare(ctx, name, sql)
}

// LargeObjects implements [pgx.Tx]. Its first call may cost a round trip.
func (t *ownTx) LargeObjects() pgx.LargeObjects {
	inner, err := t.driver(context.Background())
	if err != nil {
		return pgx.LargeObjects{}
	}
	return inner.LargeObjects()
}

// Conn implements [pgx.Tx].
func (t *ownTx) Conn() *pgx.Conn { return t.conn.Conn() }
