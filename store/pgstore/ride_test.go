package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe/internal/test/crashtest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
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
	return testservers.Shared(t)
}

// openGarage opens the database at url, in the parent and in its children.
func openGarage(ctx context.Context, url string) (*crashtest.Garage[pgx.Tx], error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(s.Pool())
	return &crashtest.Garage[pgx.Tx]{
		Store: s,
		DB:    db,
		Exec: func(ctx context.Context, tx pgx.Tx, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		},
		Close: func() error { return errors.Join(db.Close(), s.Close()) },
	}, nil
}
