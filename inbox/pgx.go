package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PGX returns the inbox of a consumer in PostgreSQL, for transactions of pgx. The
// consumer's name is part of every key: under another name all messages are fresh.
// Opts may be nil.
func PGX(pool *pgxpool.Pool, consumer string, opts *Options) (*Inbox[pgx.Tx], error) {
	if pool == nil {
		return nil, errors.New("inbox: the pool is nil")
	}
	return newInbox[pgx.Tx](consumer, opts, native{pool}, &postgres)
}

type native struct{ pool *pgxpool.Pool }

func (n native) begin(ctx context.Context) (pgx.Tx, error) {
	// A delivery that waited for another one must see what it has committed.
	return n.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
}

func (native) join(tx pgx.Tx) transaction { return nativeTx{nativeSession{tx}, tx} }

func (n native) inTx(ctx context.Context, do func(session) error) error {
	tx, err := n.begin(ctx)
	if err != nil {
		return err
	}
	return finish(ctx, n.join(tx), do)
}

func (n native) outside() session { return nativeSession{n.pool} }

// A nativeSession is a pool or a transaction.
type nativeSession struct {
	db interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
}

func (s nativeSession) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := s.db.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

func (s nativeSession) read(ctx context.Context, into any, sql string, args ...any) (bool, error) {
	err := s.db.QueryRow(ctx, sql, args...).Scan(into)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

type nativeTx struct {
	nativeSession
	tx pgx.Tx
}

func (t nativeTx) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	// If a statement of fn's has ended the transaction, the insert would commit on its
	// own: the message would count as applied without its effects.
	if t.tx.Conn().PgConn().TxStatus() == 'I' {
		return 0, pgx.ErrTxClosed
	}
	return t.nativeSession.exec(ctx, sql, args...)
}

func (t nativeTx) commit(ctx context.Context) error { return t.tx.Commit(ctx) }

func (t nativeTx) rollback(ctx context.Context) error {
	if err := t.tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}
