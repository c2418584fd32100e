package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/crashtest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestSeed003_RideIsFinishedWhereverItIsKilled(t *testing.T) {
	t.Parallel()
	crashtest.SweepRide(t, openGarage, garage)
}

func TestSeed001_CrashAfterTheSideEffect(t *testing.T) {
	t.Parallel()
	crashtest.KillAroundTheCharge(t, openGarage, garage, 50)
}

func garage(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "rides.db")
}

// openGarage opens the file at path, in the parent and in its children.
func openGarage(ctx context.Context, path string) (*crashtest.Garage[*sql.Tx], error) {
	s, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return &crashtest.Garage[*sql.Tx]{
		Store: s,
		DB:    s.DB(),
		Exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		},
		Close: s.Close,
	}, nil
}
