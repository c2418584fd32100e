package demo

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe/store/pgstore"
)

// openPostgres shares the store's own pool, by database/sql, so that the business is
// written once for both databases.
func openPostgres(ctx context.Context, url string) (*database, error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(s.Pool())
	return &database{
		keys: s, messages: s.Outbox(), DB: db,
		join:  func(tx *sql.Tx) joined { return s.SQLTx(tx) },
		close: func() error { return errors.Join(db.Close(), s.Close()) },
	}, nil
}
