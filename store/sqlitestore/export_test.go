package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/migrate"
)

// ID returns what the row of a ref is found by.
func ID(ref retrysafe.Ref) []byte { return idOf(ref) }

// MigrateOn migrates as a later version of this program would, that has these
// migrations more.
func MigrateOn(ctx context.Context, db *sql.DB, more ...string) error {
	set, err := migrations()
	if err != nil {
		return err
	}
	for _, script := range more {
		m, err := migrate.Parse(fmt.Sprintf("%04d_later", set.Newest()+1), script)
		if err != nil {
			return err
		}
		set.Migrations = append(set.Migrations, m)
	}
	if err := set.Migrate(ctx, migrationDB{db}); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// SelectDue is how an outbox is read.
const SelectDue = selectDue

// ChangeWait is the interval at which changes are read.
const ChangeWait = changeWait
