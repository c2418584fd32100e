package inbox

import (
	"context"
	"database/sql"
	"errors"
)

// Postgres is [PGX] for transactions of database/sql, under any driver for
// PostgreSQL.
func Postgres(db *sql.DB, consumer string, opts *Options) (*Inbox[*sql.Tx], error) {
	if db == nil {
		return nil, errors.New("inbox: the database is nil")
	}
	return newInbox[*sql.Tx](consumer, opts, standard{db}, &postgres)
}

// SQLite returns the inbox of a consumer in SQLite, which has one writer at a time. The
// connections need a busy_timeout. A caller's transaction for [Inbox.OnceTx] must take
// the write lock when it begins (BEGIN IMMEDIATE, or _txlock=immediate): a transaction
// that reads first may not get the write lock any more.
func SQLite(db *sql.DB, consumer string, opts *Options) (*Inbox[*sql.Tx], error) {
	switch {
	case db == nil:
		return nil, errors.New("inbox: the database is nil")
	case opts != nil && opts.Schema != "":
		return nil, errors.New("inbox: SQLite has no schemas")
	}
	return newInbox[*sql.Tx](consumer, opts, embedded{standard{db}}, &sqlite)
}

// standard is PostgreSQL under database/sql.
type standard struct{ db *sql.DB }

func (s standard) begin(ctx context.Context) (*sql.Tx, error) {
	return s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

func (standard) join(tx *sql.Tx) transaction { return standardTx{standardSession{tx}, tx} }

func (s standard) inTx(ctx context.Context, do func(session) error) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	return finish(ctx, s.join(tx), do)
}

func (s standard) outside() session { return standardSession{s.db} }

// embedded is SQLite.
type embedded struct{ standard }

func (e embedded) begin(ctx context.Context) (*sql.Tx, error) { return e.db.BeginTx(ctx, nil) }

func (e embedded) inTx(ctx context.Context, do func(session) error) (err error) {
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	end := `ROLLBACK`
	defer func() { // also when do panics: the connection goes back to the pool
		_, ended := conn.ExecContext(context.WithoutCancel(ctx), end)
		err = errors.Join(err, ended)
	}()
	if err := do(standardSession{conn}); err != nil {
		return err
	}
	end = `COMMIT`
	return nil
}

// A standardSession is a database, a connection or a transaction.
type standardSession struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

func (s standardSession) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	result, err := s.db.ExecContext(ctx, sql, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s standardSession) read(ctx context.Context, into any, query string, args ...any) (bool, error) {
	err := s.db.QueryRowContext(ctx, query, args...).Scan(into)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

type standardTx struct {
	standardSession
	tx *sql.Tx
}

func (t standardTx) commit(context.Context) error { return t.tx.Commit() }

func (t standardTx) rollback(context.Context) error {
	if err := t.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}
