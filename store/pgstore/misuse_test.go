package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/misusetest"
	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

func TestMisusedTransactions(t *testing.T) {
	t.Parallel()
	misusetest.Run(t, openShop, garage)
}

func TestMisusedTransactionsOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	misusetest.Run(t, openSQLShop, garage)
}

func TestTransactionsOfDatabaseSQLGiveBackWhatTheyHold(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	db := stdlib.OpenDBFromPool(s.Pool())
	defer db.Close()
	misusetest.GiveBack(t, s.SQL(db), db)
}

func TestAckThatCannotBeAppliedFailsAlone(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	misusetest.Acks(t, s, s.Outbox(), func(m ...outbox.Message) { putMessages(t, s, m...) })
}

func TestOutboxStepThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	exec(t, conn, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$`)
	misusetest.FailingOutbox(t, s, s.Outbox(), func(m ...outbox.Message) { putMessages(t, s, m...) }, func(event, table string) func() {
		exec(t, conn, `CREATE TRIGGER refusal BEFORE `+event+` ON `+table+` FOR EACH ROW EXECUTE FUNCTION refuse()`)
		return func() { exec(t, conn, `DROP TRIGGER refusal ON `+table) }
	})
}

func TestRandomOrdersOfCalls(t *testing.T) {
	t.Parallel()
	misusetest.RandomOrders(t, openShop, testservers.Shared(t), rand.New(rand.NewPCG(seed.For(t), 0)), 500)
}

func openShop(ctx context.Context, url string) (*misusetest.Shop[pgx.Tx], error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(s.Pool())
	return &misusetest.Shop[pgx.Tx]{
		Store: s,
		DB:    db,
		Exec: func(ctx context.Context, tx pgx.Tx, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		},
		Endless: `INSERT INTO orders SELECT 'x' FROM pg_sleep(3600)`,
		Join:    func(tx *sql.Tx) retrysafe.Tx { return s.SQLTx(tx) },
		Close:   func() error { return errors.Join(db.Close(), s.Close()) },
	}, nil
}

// openSQLShop opens the same with the transactions of database/sql.
func openSQLShop(ctx context.Context, url string) (*misusetest.Shop[*sql.Tx], error) {
	shop, err := openShop(ctx, url)
	if err != nil {
		return nil, err
	}
	s := shop.Store.(*pgstore.Store)
	return &misusetest.Shop[*sql.Tx]{
		Store: s.SQL(shop.DB),
		DB:    shop.DB,
		Exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		},
		Endless: shop.Endless,
		Join:    shop.Join,
		Close:   shop.Close,
	}, nil
}

func TestCreateWithoutAnOwnerRecognisesNothing(t *testing.T) {
	t.Parallel()
	misusetest.Ownerless(t, open(t, testservers.Shared(t), nil))
}
