package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/crashtest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMain(m *testing.M) {
	if crashtest.IsChild() {
		os.Exit(crashtest.RunChild(openPlace))
	}
	if role := os.Getenv(envRole); role != "" {
		os.Exit(runPost(role))
	}
	m.Run()
}

func TestCrashSweep(t *testing.T) {
	t.Parallel()
	crashtest.Sweep(t, openPlace, func(t *testing.T) string {
		t.Helper()
		return filepath.Join(t.TempDir(), "keys.db")
	})
}

// openPlace opens the file at path for the crash sweep, in its parent and in its
// children.
func openPlace(ctx context.Context, path string) (*crashtest.Place, error) {
	s, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return &crashtest.Place{
		Store: s,
		DB:    s.DB(),
		InTx: func(ctx context.Context, x *retrysafe.Execution, effect string, r retrysafe.Result, f *crashtest.Fuse) error {
			tx, err := s.DB().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, effect); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			f.Pass()
			if err := x.CompleteTx(ctx, s.Tx(tx), r); err != nil {
				return err
			}
			f.Pass()
			err = tx.Commit()
			f.Pass()
			return err
		},
		OneCommit: crashtest.OneCommit(s, func(ctx context.Context, tx *sql.Tx, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}),
		Close: s.Close,
	}, nil
}
