package yard

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

// A Place is a yard as one process has it open: the store, and a table of effects
// in the same database. Nothing but the transactions keeps a second effect of a key
// out of the table.
type Place struct {
	*storeurl.Opened
	begin   func(ctx context.Context) (retrysafe.Tx, Book, error)
	effects func(ctx context.Context, each func(key, by string)) error
}

// Book adds an effect of a key to the table, in the transaction that it came with.
// By says whose effect it is.
type Book func(ctx context.Context, key, by string) error

const (
	makeEffects = `CREATE TABLE IF NOT EXISTS %s (key TEXT NOT NULL, by TEXT NOT NULL)`
	bookEffect  = `INSERT INTO %s (key, by) VALUES ($1, $2)`
	readEffects = `SELECT key, by FROM %s`
)

var _ retrysafe.TxStore[Book] = (*txStore)(nil)

// TxStore returns the place's store, for transactions that book effects.
func (p *Place) TxStore() retrysafe.TxStore[Book] { return &txStore{p.Store, p} }

type txStore struct {
	retrysafe.Store
	p *Place
}

// BeginTx implements [retrysafe.TxStore].
func (s *txStore) BeginTx(ctx context.Context) (retrysafe.Tx, Book, error) { return s.p.begin(ctx) }

// Effects returns whose effects each key has.
func (p *Place) Effects(ctx context.Context) (map[string][]string, error) {
	all := map[string][]string{}
	err := p.effects(ctx, func(key, by string) { all[key] = append(all[key], by) })
	return all, err
}

// Enter opens the yard at a URL. Any number of processes may, at the same time.
func Enter(ctx context.Context, url string) (*Place, error) {
	at, err := storeurl.Parse(url)
	if err != nil {
		return nil, err
	}
	opened, err := storeurl.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	p := &Place{Opened: opened}
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

func (p *Place) onPostgres(ctx context.Context, s *pgstore.Store, schema string) error {
	table := "effects"
	if schema != "" {
		table = pgx.Identifier{schema, table}.Sanitize()
	}
	// Two that make the same table at the same time may get in each other's way; the
	// lock is that of this statement's transaction.
	const alone = `DO $do$ BEGIN PERFORM pg_advisory_xact_lock(723654123); %s; END $do$`
	if _, err := s.Pool().Exec(ctx, fmt.Sprintf(alone, fmt.Sprintf(makeEffects, table))); err != nil {
		return fmt.Errorf("make the table of effects: %w", err)
	}
	book := fmt.Sprintf(bookEffect, table)
	p.begin = func(ctx context.Context) (retrysafe.Tx, Book, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error {
			_, err := own.Exec(ctx, book, key, by)
			return err
		}, err
	}
	p.effects = func(ctx context.Context, each func(key, by string)) error {
		rows, err := s.Pool().Query(ctx, fmt.Sprintf(readEffects, table))
		if err != nil {
			return err
		}
		var key, by string
		_, err = pgx.ForEachRow(rows, []any{&key, &by}, func() error { each(key, by); return nil })
		return err
	}
	return nil
}

func (p *Place) onSQLite(ctx context.Context, s *sqlitestore.Store) error {
	if _, err := s.DB().ExecContext(ctx, fmt.Sprintf(makeEffects, "effects")); err != nil {
		return fmt.Errorf("make the table of effects: %w", err)
	}
	p.begin = func(ctx context.Context) (retrysafe.Tx, Book, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error {
			_, err := own.ExecContext(ctx, fmt.Sprintf(bookEffect, "effects"), key, by)
			return err
		}, err
	}
	p.effects = func(ctx context.Context, each func(key, by string)) (err error) {
		rows, err := s.DB().QueryContext(ctx, fmt.Sprintf(readEffects, "effects"))
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

func (p *Place) inMemory(s *memstore.Store) {
	var mu sync.Mutex
	booked := map[string][]string{}
	p.begin = func(ctx context.Context) (retrysafe.Tx, Book, error) {
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
