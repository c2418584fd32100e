package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// maxConns is how many connections [Open] makes at most for the store's own steps, and as
// many again for transactions.
const maxConns = 16

// dialTimeout bounds a connection attempt, if the data source name does not.
const dialTimeout = 10 * time.Second

// Open connects to the database that dsn names, a data source name of
// github.com/go-sql-driver/mysql such as "user:password@tcp(host:3306)/database", and
// returns a store over it. Opts may be nil. The caller closes the store.
//
// The store's own steps have connections of their own, which take several statements in
// one round trip. Those of [Store.DB] do not; their transactions are READ COMMITTED.
func Open(ctx context.Context, dsn string, opts *Options) (*Store, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("mysqlstore: the data source name cannot be read; it is user:password@tcp(host:port)/database") // without err, which may quote the password
	}
	if config.DBName == "" {
		return nil, errors.New("mysqlstore: the data source name has no database; it is user:password@tcp(host:port)/database")
	}
	if config.Timeout == 0 {
		config.Timeout = dialTimeout
	}
	config.InterpolateParams = true // else each statement with a parameter takes two round trips
	config.MultiStatements = false
	config.Logger = &mysql.NopLogger{} // errors are returned
	config.RejectReadOnly = false      // the driver would hide a refusal from the store
	db, err := pool(config, callerSession)
	if err != nil {
		return nil, err
	}
	own := config.Clone()
	own.MultiStatements = true
	steps, err := pool(own, stepSession)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s, err := newStore(ctx, db, steps, opts)
	if err != nil {
		return nil, errors.Join(err, steps.Close(), db.Close())
	}
	s.owned = []*sql.DB{steps, db}
	return s, nil
}

func pool(config *mysql.Config, session []string) (*sql.DB, error) {
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: the data source name: %w", err)
	}
	db := sql.OpenDB(connector{inner, session})
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns) // by default the pool would close all but two after each burst
	return db, nil
}

// What a session is set to when it begins. SET SESSION TRANSACTION is understood by both
// servers, whose variables of the isolation level have different names.
var (
	callerSession = []string{
		`SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`,
		`SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_TRANS_TABLES')`,
	}
	// A step waits at most a second for a row's lock before it looks whether its caller
	// still waits, and no step waits long for a change of the schema.
	stepSession = []string{
		`SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`,
		`SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, innodb_lock_wait_timeout = 1, lock_wait_timeout = 5`,
	}
)

// connector opens connections and prepares their sessions.
type connector struct {
	driver.Connector
	session []string
}

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(errors.New("mysqlstore: a connection of another driver"), conn.Close())
	}
	for _, query := range c.session {
		if _, err := execer.ExecContext(ctx, query, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare session: %w", err), conn.Close())
		}
	}
	return conn, nil
}

// DB returns the database, for transactions that the store is to join.
func (s *Store) DB() *sql.DB { return s.db }

// ErrClosed says that the store was closed before the step. Nothing was sent.
var ErrClosed = errors.New("mysqlstore: the store is closed")

// Close waits for the steps that are under way and closes what [Open] opened. Later steps
// return [ErrClosed].
func (s *Store) Close() error {
	s.life.End()
	s.batches.batcher.Wait() // a batch may last longer than the call that it was sent for
	s.alone.Wait()
	for _, db := range s.owned {
		// A connection that was broken meanwhile is an error here. It says nothing about
		// records: no step is under way any more.
		_ = db.Close()
	}
	return nil
}
