package sandbox

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// A DB is a sandbox that one process has open: the store, and a table of effects in the
// same database. The table has no unique constraint: only the transactions keep a
// second effect of a key out of it.
type DB struct {
	*storeurl.Opened
	begin   func(ctx context.Context) (retrysafe.Tx, AddEffect, error)
	effects func(ctx context.Context, each func(key, by string)) error
}

// AddEffect inserts an effect of a key into the table, in the transaction that BeginTx
// returned it with. By names the attempt.
type AddEffect func(ctx context.Context, key, by string) error

const (
	createEffects = `CREATE TABLE IF NOT EXISTS %s (key TEXT NOT NULL, by TEXT NOT NULL)`
	insertEffect  = `INSERT INTO %s (key, by) VALUES ($1, $2)`
	selectEffects = `SELECT key, by FROM %s`
)

var _ retrysafe.TxStore[AddEffect] = (*txStore)(nil)

// TxStore returns the store, for transactions that insert effects.
func (p *DB) TxStore() retrysafe.TxStore[AddEffect] { return &txStore{p.Store, p} }

type txStore struct {
	retrysafe.Store
	p *DB
}

// BeginTx implements [retrysafe.TxStore].
func (s *txStore) BeginTx(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
	return s.p.begin(ctx)
}

// Effects returns, for each key, which attempts have had an effect.
func (p *DB) Effects(ctx context.Context) (map[string][]string, error) {
	all := map[string][]string{}
	err := p.effects(ctx, func(key, by string) { all[key] = append(all[key], by) })
	return all, err
}

// Open opens the sandbox at a URL. Any number of processes may have it open at the same
// time.
func Open(ctx context.Context, url string) (*DB, error) {
	at, err := storeurl.Parse(url)
	if err != nil {
		return nil, err
	}
	opened, err := storeurl.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	p := &DB{Opened: opened}
	switch s := opened.Store.(type) {
	case *pgstore.Store:
		err = p.onPostgres(ctx, s, at.Schema)
	case *sqlitestore.Store:
		err = p.onSQLite(ctx, s)
	case *memstore.Store:
		p.inMemory(s)
	default:
		err = fmt.Errorf("no transactions of %T are known", s)
	}
	if err != nil {
		_ = opened.Close() // the first error says more
		return nil, err
	}
	return p, nil
}

func (p *DB) onPostgres(ctx context.Context, s *pgstore.Store, schema string) error {
	table := "effects"
	if schema != "" {
		table = pgx.Identifier{schema, table}.Sanitize()
	}
	// Two processes that create the same table at the same time may fail; the lock lasts
	// for this statement's transaction.
	const alone = `DO $do$ BEGIN PERFORM pg_advisory_xact_lock(723654123); %s; END $do$`
	if _, err := s.Pool().Exec(ctx, fmt.Sprintf(alone, fmt.Sprintf(createEffects, table))); err != nil {
		return fmt.Errorf("make the table of effects: %w", err)
	}
	book := fmt.Sprintf(insertEffect, table)
	p.begin = func(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error {
			_, err := own.Exec(ctx, book, key, by)
			return err
		}, err
	}
	p.effects = func(ctx context.Context, each func(key, by string)) error {
		rows, err := s.Pool().Query(ctx, fmt.Sprintf(selectEffects, table))
		if err != nil {
			return err
		}
		var key, by string
		_, err = pgx.ForEachRow(rows, []any{&key, &by}, func() error { each(key, by); return nil })
		return err
	}
	return nil
}

func (p *DB) onSQLite(ctx context.Context, s *sqlitestore.Store) error {
	if _, err := s.DB().ExecContext(ctx, fmt.Sprintf(createEffects, "effects")); err != nil {
		return fmt.Errorf("make the table of effects: %w", err)
	}
	p.begin = func(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error {
			_, err := own.ExecContext(ctx, fmt.Sprintf(insertEffect, "effects"), key, by)
			return err
		}, err
	}
	p.effects = func(ctx context.Context, each func(key, by string)) (err error) {
		rows, err := s.DB().QueryContext(ctx, fmt.Sprintf(selectEffects, "effects"))
		if err != nil {
			return err
		}
		return scan(rows, each)
	}
	return nil
}

func scan(rows *sql.Rows, each func(key, by string)) error {
	defer func() { _ = rows.Close() }() // Err has what went wrong
	for rows.Next() {
		var key, by string
		if err := rows.Scan(&key, &by); err != nil {
			return err
		}
		each(key, by)
	}
	return rows.Err()
}

func (p *DB) inMemory(s *memstore.Store) {
	var mu sync.Mutex
	booked := map[string][]string{}
	p.begin = func(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
		tx, err := s.Begin(ctx)
		return tx, func(_ context.Context, key, by string) error {
			tx.OnCommit(func() {
				mu.Lock()
				defer mu.Unlock()
				booked[key] = append(booked[key], by)
			})
			return nil
		}, err
	}
	p.effects = func(_ context.Context, each func(key, by string)) error {
		mu.Lock()
		defer mu.Unlock()
		for key, owners := range booked {
			for _, by := range owners {
				each(key, by)
			}
		}
		return nil
	}
}
