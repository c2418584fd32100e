package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/misusetest"
	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMisusedTransactions(t *testing.T) {
	t.Parallel()
	misusetest.Run(t, openShop, shop)
}

func TestTransactionsGiveBackWhatTheyHold(t *testing.T) {
	t.Parallel()
	s := patient(t, shop(t))
	misusetest.GiveBack(t, s, s.DB())
}

func TestAckThatCannotBeAppliedFailsAlone(t *testing.T) {
	t.Parallel()
	s := patient(t, shop(t))
	misusetest.Acks(t, s, s.Outbox(), func(m ...outbox.Message) { enqueue(t, s, m...) })
}

func TestOutboxStepThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	s := patient(t, shop(t))
	n := 0 // each trigger has a name of its own: a connection may remember one that another has dropped
	misusetest.FailingOutbox(t, s, s.Outbox(), func(m ...outbox.Message) { enqueue(t, s, m...) }, func(event, table string) func() {
		n++
		name := fmt.Sprint("refusal", n)
		exec(t, s.DB(), `CREATE TRIGGER `+name+` BEFORE `+event+` ON `+table+` BEGIN SELECT RAISE(FAIL, 'not today'); END`)
		return func() { exec(t, s.DB(), `DROP TRIGGER `+name) }
	})
}

func TestRandomOrdersOfCalls(t *testing.T) {
	t.Parallel()
	misusetest.RandomOrders(t, openShop, shop(t), rand.New(rand.NewPCG(seed.For(t), 0)), 500)
}

func shop(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "orders.db")
}

func openShop(ctx context.Context, path string) (*misusetest.Shop[*sql.Tx], error) {
	s, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return &misusetest.Shop[*sql.Tx]{
		Store: s,
		DB:    s.DB(),
		Exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		},
		Endless: `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO orders SELECT 'x' FROM n WHERE i < 0`,
		Join:    func(tx *sql.Tx) retrysafe.Tx { return s.Tx(tx) },
		Close:   s.Close,
	}, nil
}

func TestCreateWithoutAnOwnerRecognisesNothing(t *testing.T) {
	t.Parallel()
	misusetest.Ownerless(t, patient(t, shop(t)))
}

func TestLimitOfAPurgeIsForAllStates(t *testing.T) {
	t.Parallel()
	misusetest.PurgeLimit(t, patient(t, shop(t)))
}
