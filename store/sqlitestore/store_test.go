package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

func open(t *testing.T, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		path := filepath.Join(t.TempDir(), "keys.db")
		s := open(t, path)
		var begun []*sql.Tx
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, path), open(t, path)}, // as other processes would hold it
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, err := s.DB().BeginTx(ctx, nil)
				if err != nil {
					return nil, err
				}
				begun = append(begun, tx)
				return s.Tx(tx), nil
			},
			OneWriter:  true,
			BeginWaits: true,
			Damage: func(ref retrysafe.Ref) error {
				_, err := s.DB().ExecContext(t.Context(), `UPDATE retrysafe_keys SET rec = substr(rec, 1, length(rec) - 1) WHERE id = ?`, sqlitestore.ID(ref))
				return err
			},
			// As near to a crash as one process can come: what was not committed is
			// gone, and nothing is tidied up.
			Reopen: func() retrysafe.Store {
				for _, tx := range begun {
					_ = tx.Rollback()
				}
				_ = s.Close()
				s = open(t, path)
				return s
			},
		}
	})
}
