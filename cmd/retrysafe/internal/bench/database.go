package bench

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// withConnections returns the URL of a store with as many connections as the bare loop and
// transactions may have, if the user's URL does not say how many.
func withConnections(at *storeurl.Address, address string) (string, error) {
	if at.Kind != storeurl.Postgres {
		return address, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	q := u.Query()
	if !q.Has("pool_max_conns") {
		q.Set("pool_max_conns", strconv.Itoa(Connections))
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// openDatabase opens the database of a store for the bare loop, and for operations in one
// commit if the store joins transactions.
func openDatabase(ctx context.Context, s retrysafe.Store, at *storeurl.Address, e *retrysafe.Engine) (database, transactionFunc, error) {
	switch s := s.(type) {
	case *pgstore.Store:
		db, err := newPostgres(ctx, s, at.Schema)
		if err != nil {
			return nil, nil, err
		}
		return db, inOneCommit(e, s, db.pay), nil
	case *mysqlstore.Store:
		s.DB().SetMaxOpenConns(Connections)
		s.DB().SetMaxIdleConns(Connections)
		db, err := newSQL(ctx, s.DB(), mysqlSchema)
		if err != nil {
			return nil, nil, err
		}
		return db, inOneCommit(e, s, pay), nil
	case *sqlitestore.Store:
		own, err := sql.Open("sqlite", sqlitestore.DSN(at.Path))
		if err != nil {
			return nil, nil, err
		}
		own.SetMaxOpenConns(1) // SQLite has one writer at a time; more would wait for it by sleeping
		db, err := newSQL(ctx, own, sqliteSchema)
		if err != nil {
			_ = own.Close() // the first error says more
			return nil, nil, err
		}
		db.own = true
		return db, inOneCommit(e, s, pay), nil
	default:
		db, err := openElsewhere(ctx, at)
		return db, nil, err
	}
}

// openElsewhere opens the database of a store that joins no transactions.
func openElsewhere(ctx context.Context, at *storeurl.Address) (database, error) {
	switch at.Kind {
	case storeurl.Redis:
		return newRedis(at)
	case storeurl.DynamoDB:
		return newDynamoDB(ctx, at)
	default:
		return nil, fmt.Errorf("a store of the kind %q cannot be measured", at.Kind)
	}
}

// inOneCommit returns a function that runs calls in transactions of the store. The effect of
// a call is the row that insert inserts.
func inOneCommit[T any](e *retrysafe.Engine, s retrysafe.TxStore[T], insert func(context.Context, T) error) transactionFunc {
	return func(ctx context.Context, c retrysafe.Call) (retrysafe.Outcome, error) {
		return retrysafe.DoTx(ctx, e, s, c, func(ctx context.Context, tx T) (retrysafe.Result, error) {
			return answer, insert(ctx, tx)
		})
	}
}

// postgres is a PostgreSQL database, by the pool that the store has for transactions.
type postgres struct {
	s                                   *pgstore.Store
	insertRow, updateRow, insertPayment string
}

func newPostgres(ctx context.Context, s *pgstore.Store, schema string) (*postgres, error) {
	in := func(format string) string { return fmt.Sprintf(format, pgx.Identifier{schema}.Sanitize()) }
	p := &postgres{
		s:             s,
		insertRow:     in(`INSERT INTO %s.bare (id, scope, operation, fingerprint) VALUES ($1, $2, $3, $4)`),
		updateRow:     in(`UPDATE %s.bare SET status = $2, body = $3 WHERE id = $1`),
		insertPayment: in(`INSERT INTO %s.payments (account, amount) VALUES ($1, $2)`),
	}
	for _, create := range []string{
		in(`CREATE TABLE %s.bare (id TEXT PRIMARY KEY, scope TEXT NOT NULL, operation TEXT NOT NULL, fingerprint BYTEA NOT NULL, status SMALLINT, body BYTEA)`),
		in(`CREATE TABLE %s.payments (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account TEXT NOT NULL, amount BIGINT NOT NULL)`),
	} {
		if _, err := s.Pool().Exec(ctx, create); err != nil {
			return nil, fmt.Errorf("create the tables of the bare loop: %w", err)
		}
	}
	return p, nil
}

func (p *postgres) insert(ctx context.Context, n int64) error {
	c := newCall(n)
	_, err := p.s.Pool().Exec(ctx, p.insertRow, c.Key, c.Scope, c.Operation, c.Fingerprint.Sum[:])
	return err
}

func (p *postgres) update(ctx context.Context, n int64) error {
	_, err := p.s.Pool().Exec(ctx, p.updateRow, keyOf(n), answer.Status, answer.Body)
	return err
}

func (p *postgres) roundTrip(ctx context.Context) error {
	_, err := p.s.Pool().Exec(ctx, `SELECT 1`)
	return err
}

func (p *postgres) close(context.Context) error { return nil }

// pay is the effect of an operation: one row.
func (p *postgres) pay(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, p.insertPayment, payer, amount)
	return err
}

const (
	payer  = "acct_1"
	amount = 1200
)
