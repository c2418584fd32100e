package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/crashtest"
	"github.com/retrysafe/retrysafe/internal/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

func TestCrashSweep(t *testing.T) {
	t.Parallel()
	crashtest.Sweep(t, openPlace, func(t *testing.T) string {
		t.Helper()
		return testservers.Shared(t)
	})
}

// openPlace opens the database at url for the crash sweep, in its parent and in
// its children.
func openPlace(ctx context.Context, url string) (*crashtest.Place, error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(s.Pool())
	return &crashtest.Place{
		Store: s,
		DB:    db,
		InTx: func(ctx context.Context, x *retrysafe.Execution, effect string, r retrysafe.Result, f *crashtest.Fuse) error {
			tx, err := s.Pool().Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, effect); err != nil {
				return errors.Join(err, tx.Rollback(ctx))
			}
			f.Pass()
			if err := x.CompleteTx(ctx, s.Tx(tx), r); err != nil {
				return err
			}
			f.Pass()
			err = tx.Commit(ctx)
			f.Pass()
			return err
		},
		OneCommit: crashtest.OneCommit(s, func(ctx context.Context, tx pgx.Tx, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		}),
		Close: func() error { return errors.Join(db.Close(), s.Close()) },
	}, nil
}
