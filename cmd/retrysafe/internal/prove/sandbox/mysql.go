package sandbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// newMySQL makes a database of its own on the server.
func newMySQL(ctx context.Context, address string, at *storeurl.Address) (*Sandbox, error) {
	name := "retrysafe_prove_" + strings.ToLower(rand.Text()[:10])
	if err := executeMySQL(ctx, at.DSN, "CREATE DATABASE "+name); err != nil {
		return nil, fmt.Errorf("make a database for the check (the user needs CREATE and DROP on retrysafe_prove_%%): %w", err)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	u.Path = "/" + name
	return &Sandbox{URL: u.String(), remove: func(ctx context.Context) error {
		return executeMySQL(ctx, at.DSN, "DROP DATABASE "+name)
	}}, nil
}

func executeMySQL(ctx context.Context, dsn, statement string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// The table of effects. KEY and BY are words of MySQL.
const (
	createEffects = "CREATE TABLE IF NOT EXISTS effects (`key` LONGBLOB NOT NULL, `by` LONGBLOB NOT NULL) ENGINE = InnoDB"
	insertEffect  = "INSERT INTO effects (`key`, `by`) VALUES (?, ?)"
	selectEffects = "SELECT `key`, `by` FROM effects"
)

func (p *DB) onMySQL(ctx context.Context, s *mysqlstore.Store) error {
	if _, err := s.DB().ExecContext(ctx, createEffects); err != nil {
		return fmt.Errorf("create the table of effects: %w", err)
	}
	p.begin = func(ctx context.Context) (retrysafe.Tx, AddEffect, error) {
		tx, own, err := s.BeginTx(ctx)
		return tx, func(ctx context.Context, key, by string) error {
			_, err := own.ExecContext(ctx, insertEffect, key, by)
			return err
		}, err
	}
	p.effects = func(ctx context.Context) (map[string][]string, error) {
		rows, err := s.DB().QueryContext(ctx, selectEffects)
		if err != nil {
			return nil, err
		}
		return scan(rows)
	}
	return nil
}
