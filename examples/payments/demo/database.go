package demo

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// database holds keys, messages and the business tables together, so that one
// transaction can write all three.
type database struct {
	keys     retrysafe.Store
	messages outbox.Store
	*sql.DB
	join  func(*sql.Tx) joined // lets the store take part in a transaction
	close func() error
}

// joined is a transaction that the store takes part in.
type joined interface {
	retrysafe.Tx
	outbox.Enqueuer
}

//go:embed schema.sql
var schema string

func openDatabase(ctx context.Context, address string) (*database, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		s, err := sqlitestore.Open(ctx, strings.TrimPrefix(path, "//"), nil)
		if err != nil {
			return nil, err
		}
		join := func(tx *sql.Tx) joined { return s.Tx(tx) }
		return &database{keys: s, messages: s.Outbox(), DB: s.DB(), join: join, close: s.Close}, nil
	}
	server, opts, err := postgres(address)
	if err != nil {
		return nil, err
	}
	s, err := pgstore.Open(ctx, server, opts)
	if err != nil {
		return nil, err
	}
	// database/sql here too, so that one business code serves both databases.
	db, join := stdlib.OpenDBFromPool(s.Pool()), func(tx *sql.Tx) joined { return s.SQLTx(tx) }
	closeBoth := func() error { return errors.Join(db.Close(), s.Close()) }
	return &database{keys: s, messages: s.Outbox(), DB: db, join: join, close: closeBoth}, nil
}

// postgres takes the parameters that are not PostgreSQL's out of its URL: schema=NAME, the
// schema of the store's tables, pgbouncer=true and anyserver=true.
func postgres(address string) (server string, opts *pgstore.Options, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, errors.New("the URL of the store is malformed; characters such as @ : / # % in a password are written as %40 and so on")
	}
	q := u.Query()
	opts = &pgstore.Options{Schema: q.Get("schema"), PgBouncer: q.Get("pgbouncer") == "true", AnyServer: q.Get("anyserver") == "true"}
	q.Del("schema")
	q.Del("pgbouncer")
	q.Del("anyserver")
	u.RawQuery = q.Encode()
	return u.String(), opts, nil
}

// checkStore refuses URLs of stores that do not share their transactions.
func checkStore(address string) error {
	switch path, isSQLite := strings.CutPrefix(address, "sqlite:"); {
	case isSQLite && strings.TrimPrefix(path, "//") == "":
		return errors.New("sqlite: needs a file: sqlite:PATH")
	case isSQLite:
		return nil
	case strings.HasPrefix(address, "postgres://"), strings.HasPrefix(address, "postgresql://"):
		_, _, err := postgres(address)
		return err
	}
	return errNoTables
}

var errNoTables = errors.New("the business needs a store that shares its transactions: sqlite:PATH or postgres://…")

// prepare creates the tables, including those of the store.
func prepare(ctx context.Context, url string) error {
	db, err := openDatabase(ctx, url)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, schema)
	return errors.Join(err, db.close())
}

// transaction is a business transaction that the store takes part in.
type transaction struct {
	joined
	*sql.Tx
}

// Commit and Rollback are the store's: a rollback after the end is no error.
func (t transaction) Commit(ctx context.Context) error   { return t.joined.Commit(ctx) }
func (t transaction) Rollback(ctx context.Context) error { return t.joined.Rollback(ctx) }

func (d *database) begin(ctx context.Context) (transaction, error) {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return transaction{}, err
	}
	return transaction{d.join(tx), tx}, nil
}
