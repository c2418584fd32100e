package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe/internal/migrate"
)

// INSERT IGNORE waits for a transaction that has written the same key and has not ended,
// and counts only rows that it inserts, whatever clientFoundRows says. The locking read
// sees what was committed meanwhile, also in a transaction with an older snapshot.
var inMySQL = dialect{
	kind:   migrate.DialectMySQL,
	dir:    "migrations/mysql",
	insert: `INSERT IGNORE INTO {inbox} (id, consumer, print, seen, due) VALUES (?, ?, NULLIF(?, ''), UNIX_TIMESTAMP(), UNIX_TIMESTAMP() + ?)`,
	print:  `SELECT COALESCE(print, '') FROM {inbox} WHERE id = ? LOCK IN SHARE MODE`,
	purge:  `DELETE FROM {inbox} WHERE due <= UNIX_TIMESTAMP() ORDER BY due LIMIT ?`,
	// The error's type is the driver's; its text begins with the server's code.
	isDeadlock: func(err error) bool { return strings.Contains(err.Error(), "Error 1213 (40001)") },
}

// MySQL returns the inbox of a consumer in MySQL 8, or MariaDB 10.11, or later. A caller's
// transaction for [Inbox.OnceTx] should be READ COMMITTED: at REPEATABLE READ, the
// server's default, it locks the gaps between keys, and delays other messages.
func MySQL(db *sql.DB, consumer string, opts *Options) (*Inbox[*sql.Tx], error) {
	switch {
	case db == nil:
		return nil, errors.New("inbox: the database is nil")
	case opts != nil && opts.Schema != "":
		return nil, errors.New("inbox: MySQL has no schemas; connect to another database")
	}
	return newInbox[*sql.Tx](consumer, opts, mysqlDB{standard{db}}, &inMySQL)
}

// mysqlDB is MySQL or MariaDB.
type mysqlDB struct{ standard }

func (mysqlDB) join(tx *sql.Tx) transaction { return mysqlTx{standardTx{standardSession{tx}, tx}} }

// inTx runs a migration on one connection, which has the lock of the migrations. There is
// no transaction: the server would commit it with the first change of the schema.
func (m mysqlDB) inTx(ctx context.Context, do func(session) error) (err error) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer func() { // also when do panics: the connection goes back to the pool
		_, release := conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK(`+migrate.MySQLLock+`)`)
		err = errors.Join(err, release)
	}()
	return do(mysqlMigration{standardSession{conn}})
}

// mysqlMigration runs the statements of migrations. Each migration is one statement, which
// goes without its semicolon: the pool may not take several at once.
type mysqlMigration struct{ standardSession }

func (m mysqlMigration) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	return m.standardSession.exec(ctx, strings.TrimRight(sql, ";\n"), args...)
}

type mysqlTx struct{ standardTx }

var errEnded = errors.New("inbox: the transaction has ended: a statement has committed it or rolled it back, as a deadlock does; return the errors of statements")

// intact implements [intactTx]. A deadlock rolls the whole transaction back, and the
// server then commits what follows statement by statement. It refuses to change the
// isolation level of an open transaction.
func (t mysqlTx) intact(ctx context.Context) error {
	if _, err := t.exec(ctx, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`); err == nil {
		return fmt.Errorf("%w: %w", errEnded, sql.ErrTxDone)
	}
	return nil
}
