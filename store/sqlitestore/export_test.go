package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/retrysafe/retrysafe"
)

// ID returns what the row of a ref is found by.
func ID(ref retrysafe.Ref) []byte { return idOf(ref) }

// MigrateOn migrates as a later version of this program would, that has these
// migrations more.
func MigrateOn(ctx context.Context, db *sql.DB, more ...string) error {
	all, err := allMigrations()
	if err != nil {
		return err
	}
	for _, script := range more {
		m, err := newMigration(all[len(all)-1].version+1, "a later one", script)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	return migrateTo(ctx, db, all)
}

// SelectDue is how an outbox is read.
const SelectDue = selectDue
