package sqlitestore_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// boxHarness is an outbox in a file of its own, and two handles more on it, as
// other processes would have.
func boxHarness(t *testing.T, begin func(ctx context.Context, s *sqlitestore.Store) (storetest.OutboxTx, error)) storetest.OutboxHarness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	return storetest.OutboxHarness{
		Store: s, Outbox: s.Outbox(),
		Peers:     []outbox.Store{open(t, path).Outbox(), open(t, path).Outbox()},
		Begin:     func(ctx context.Context) (storetest.OutboxTx, error) { return begin(ctx, s) },
		OneWriter: true,
		Damage: func(id int64) error {
			_, err := s.DB().ExecContext(t.Context(), `UPDATE retrysafe_outbox SET msg = substr(msg, 1, 9) || x'00' || substr(msg, 11) WHERE id = ?`, id)
			return err
		},
	}
}

func TestOutboxContract(t *testing.T) {
	t.Parallel()
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxHarness {
		return boxHarness(t, func(ctx context.Context, s *sqlitestore.Store) (storetest.OutboxTx, error) {
			tx, err := s.DB().BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			return s.Tx(tx), nil
		})
	})
}

// A transaction that the store has begun enqueues as any other.
func TestBegunTxOutboxContract(t *testing.T) {
	t.Parallel()
	storetest.RunOutboxTx(t, func(t *testing.T) storetest.OutboxHarness {
		return boxHarness(t, func(ctx context.Context, s *sqlitestore.Store) (storetest.OutboxTx, error) {
			tx, _, err := s.BeginTx(ctx)
			if err != nil {
				return nil, err
			}
			return tx.(storetest.OutboxTx), nil
		})
	})
}
