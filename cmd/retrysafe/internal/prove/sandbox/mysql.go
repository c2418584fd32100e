package sandbox

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

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
