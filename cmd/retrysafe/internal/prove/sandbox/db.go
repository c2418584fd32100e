// Package sandbox is a store of its own for one check, with a table of effects in the same
// database. The store is made and removed by package internal/sandbox.
package sandbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/sandbox"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// New makes a sandbox at the address of a store that the user has named, for [Open] in any
// process.
func New(ctx context.Context, address string) (*sandbox.Sandbox, error) {
	return sandbox.New(ctx, address, "prove")
}

// A DB is a sandbox that one process has open: the store, and a table of effects in the
// same database. The table has no unique constraint: only the transactions keep a
// second effect of a key out of it.
type DB struct {
	*storeurl.Opened
	begin   func(ctx context.Context) (retrysafe.Tx, AddEffect, error)
	effects func(ctx context.Context) (map[string][]string, error)
	modes   []effect.Mode // nil is all
}

// AddEffect inserts an effect of a key into the table, in the transaction that BeginTx
// returned it with. By names the attempt.
type AddEffect func(ctx context.Context, key, by string) error

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
	return p.effects(ctx)
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
	case *mysqlstore.Store:
		err = p.onMySQL(ctx, s)
	case *sqlitestore.Store:
		err = p.onSQLite(ctx, s)
	case *memstore.Store:
		p.inMemory(s)
	default:
		p.withoutTransactions()
	}
	if err != nil {
		_ = opened.Close() // the first error says more
		return nil, err
	}
	return p, nil
}

// withoutTransactions is for a store that joins none: no effect can be in its database.
func (p *DB) withoutTransactions() {
	p.modes = []effect.Mode{effect.Keyed, effect.Unprotected}
	p.begin = func(context.Context) (retrysafe.Tx, AddEffect, error) {
		return nil, nil, fmt.Errorf("%w: a %s store joins no transactions", errors.ErrUnsupported, p.Kind)
	}
	p.effects = func(context.Context) (map[string][]string, error) { return map[string][]string{}, nil }
}

// Modes returns how operations over the store can have their effects.
func (p *DB) Modes() []effect.Mode {
	if p.modes != nil {
		return p.modes
	}
	return effect.Modes
}

// Can reports whether operations over the store can have their effects in a mode.
func (p *DB) Can(m effect.Mode) bool { return slices.Contains(p.Modes(), m) }

func (p *DB) onPostgres(ctx context.Context, s *pgstore.Store, schema string) error {
	table := effect.TableIn(schema)
	if err := table.Create(ctx, s.Pool()); err != nil {
		return err
	}
	p.begin = func(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error { return table.Insert(ctx, own, key, by) }, err
	}
	p.effects = func(ctx context.Context) (map[string][]string, error) { return table.All(ctx, s.Pool()) }
	return nil
}

func (p *DB) onSQLite(ctx context.Context, s *sqlitestore.Store) error {
	if _, err := s.DB().ExecContext(ctx, fmt.Sprintf(effect.CreateTable, "effects")); err != nil {
		return fmt.Errorf("create the table of effects: %w", err)
	}
	p.begin = func(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error {
			_, err := own.ExecContext(ctx, fmt.Sprintf(effect.Insert, "effects"), key, by)
			return err
		}, err
	}
	p.effects = func(ctx context.Context) (map[string][]string, error) {
		rows, err := s.DB().QueryContext(ctx, fmt.Sprintf(effect.Select, "effects"))
		if err != nil {
			return nil, err
		}
		return scan(rows)
	}
	return nil
}

func scan(rows *sql.Rows) (map[string][]string, error) {
	defer func() { _ = rows.Close() }() // Err has what went wrong
	all := map[string][]string{}
	for rows.Next() {
		var key, by string
		if err := rows.Scan(&key, &by); err != nil {
			return nil, err
		}
		all[key] = append(all[key], by)
	}
	return all, rows.Err()
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
	p.effects = func(context.Context) (map[string][]string, error) {
		mu.Lock()
		defer mu.Unlock()
		all := map[string][]string{}
		for key, by := range booked {
			all[key] = slices.Clone(by)
		}
		return all, nil
	}
}
