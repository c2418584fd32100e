package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/crashtest"
	"github.com/retrysafe/retrysafe/internal/test/misusetest"
	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

func TestMisusedTransactions(t *testing.T) {
	t.Parallel()
	misusetest.Run(t, openShop, database)
}

func TestTransactionsGiveBackWhatTheyHold(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), &mysqlstore.Options{Timeout: patience})
	misusetest.GiveBack(t, s, s.DB())
}

func TestAckThatCannotBeAppliedFailsAlone(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), &mysqlstore.Options{Timeout: patience})
	misusetest.Acks(t, s, s.Outbox(), func(m ...outbox.Message) { putMessages(t, s, m...) })
}

func TestOutboxStepThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), &mysqlstore.Options{Timeout: patience})
	misusetest.FailingOutbox(t, s, s.Outbox(), func(m ...outbox.Message) { putMessages(t, s, m...) }, func(event, table string) func() {
		exec(t, s.DB(), `CREATE TRIGGER refusal BEFORE `+event+` ON `+table+` FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'`)
		return func() { exec(t, s.DB(), `DROP TRIGGER refusal`) }
	})
}

// putMessages commits messages.
func putMessages(t *testing.T, s *mysqlstore.Store, messages ...outbox.Message) {
	t.Helper()
	tx, err := join(t.Context(), s)
	must(t, err)
	must(t, tx.Enqueue(t.Context(), messages...))
	must(t, tx.Commit(t.Context()))
}

func TestRandomOrdersOfCalls(t *testing.T) {
	t.Parallel()
	misusetest.RandomOrders(t, openShop, database(t), rand.New(rand.NewPCG(seed.For(t), 0)), 100)
}

func database(t *testing.T) string {
	t.Helper()
	return testservers.SharedMariaDB(t)
}

func openShop(ctx context.Context, dsn string) (*misusetest.Shop[*sql.Tx], error) {
	s, err := mysqlstore.Open(ctx, dsn, &mysqlstore.Options{Timeout: patience})
	if err != nil {
		return nil, err
	}
	return &misusetest.Shop[*sql.Tx]{
		Store:   s,
		DB:      s.DB(),
		Exec:    execIn,
		Endless: `INSERT INTO orders SELECT SLEEP(3600)`,
		Join:    func(tx *sql.Tx) retrysafe.Tx { return s.Tx(tx) },
		Close:   s.Close,
	}, nil
}

func execIn(ctx context.Context, tx *sql.Tx, statement string) error {
	_, err := tx.ExecContext(ctx, statement)
	return err
}

func TestSeed003_RideIsFinishedWhereverItIsKilled(t *testing.T) {
	t.Parallel()
	crashtest.SweepRide(t, openGarage, database)
}

// openGarage opens the database, in the parent and in its children.
func openGarage(ctx context.Context, dsn string) (*crashtest.Garage[*sql.Tx], error) {
	s, err := mysqlstore.Open(ctx, dsn, &mysqlstore.Options{Timeout: patience})
	if err != nil {
		return nil, err
	}
	return &crashtest.Garage[*sql.Tx]{Store: s, DB: s.DB(), Exec: execIn, Close: s.Close}, nil
}

func TestCreateWithoutAnOwnerRecognisesNothing(t *testing.T) {
	t.Parallel()
	misusetest.Ownerless(t, open(t, database(t), &mysqlstore.Options{Timeout: patience}))
}

func TestLimitOfAPurgeIsForAllStates(t *testing.T) {
	t.Parallel()
	misusetest.PurgeLimit(t, open(t, database(t), &mysqlstore.Options{Timeout: patience}))
}

// A transaction that sees old rows, against the rule, is refused with the remedy.
func TestTransactionThatSeesOldRowsIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	r, err := s.Create(t.Context(), fresh("key"))
	must(t, err)
	tx, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	must(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM retrysafe_keys`).Scan(new(int)))
	must(t, second(s.Swap(t.Context(), done(r, "answer"))))
	if got, err := s.Tx(tx).Reserve(t.Context(), r.Ref); err == nil || !strings.Contains(err.Error(), "begin it READ COMMITTED") {
		t.Errorf("Reserve: got %v, %v", got.State, err)
	}
}

// A statement may end the transaction and begin another one at once. Its effects may be
// committed then, so the outcome is unknown and no retry runs.
func TestTransactionThatIsBegunAnewIsNoticed(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"MariaDB", "MySQL"} {
		for _, anew := range []string{`START TRANSACTION`, `BEGIN`, `COMMIT AND CHAIN`, `ROLLBACK AND CHAIN`} {
			for _, end := range []error{nil, errors.New("declined")} {
				t.Run(fmt.Sprint(server, "/", anew, "/", end), func(t *testing.T) {
					t.Parallel()
					s := open(t, testservers.SharedMariaDB(t), nil)
					if server == "MySQL" {
						s.SpeakMySQL()
					}
					exec(t, s.DB(), `CREATE TABLE effects (n INT)`)
					e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
					must(t, err)
					for i, want := range []error{retrysafe.ErrTxDone, retrysafe.ErrUnknown, retrysafe.ErrUnknown} {
						_, err := retrysafe.DoTx(t.Context(), e, s, retrysafe.Call{Ref: refOf("key")}, func(ctx context.Context, tx *sql.Tx) (retrysafe.Result, error) {
							for _, query := range []string{`INSERT INTO effects VALUES (1)`, anew, `INSERT INTO effects VALUES (2)`} {
								must(t, second(tx.ExecContext(ctx, query)))
							}
							return retrysafe.Result{Status: 201}, end
						})
						if !errors.Is(err, want) {
							t.Errorf("call %d: got %v, want %v", i+1, err, want)
						}
					}
					if n := one[int](t, s.DB(), `SELECT COUNT(*) FROM effects`); n > 1 {
						t.Errorf("%d effects", n)
					}
				})
			}
		}
	}
}

// A savepoint of the operation's own, and what it takes back to one, changes nothing.
func TestSavepointsInDoTx(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	exec(t, s.DB(), `CREATE TABLE effects (n INT)`)
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	must(t, err)
	for _, replayed := range []bool{false, true} {
		out, err := retrysafe.DoTx(t.Context(), e, s, retrysafe.Call{Ref: refOf("key")}, func(ctx context.Context, tx *sql.Tx) (retrysafe.Result, error) {
			for _, query := range []string{
				`SAVEPOINT a`, `INSERT INTO effects VALUES (1)`, `SAVEPOINT b`, `INSERT INTO effects VALUES (2)`, `ROLLBACK TO SAVEPOINT b`, `RELEASE SAVEPOINT a`, `INSERT INTO effects VALUES (3)`,
			} {
				must(t, second(tx.ExecContext(ctx, query)))
			}
			return retrysafe.Result{Status: 201}, nil
		})
		must(t, err)
		if out.Replayed != replayed {
			t.Errorf("replayed is %v", out.Replayed)
		}
	}
	if n := one[int](t, s.DB(), `SELECT SUM(n) FROM effects`); n != 4 {
		t.Errorf("the effects have the sum %d, want 1 and 3", n)
	}
}

// An answer that the server refuses is not stored, and that says nothing else: the
// transaction was whole until then, and is rolled back.
func TestAnswerThatIsRefusedIsNoTransactionThatHasEnded(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	exec(t, s.DB(), `CREATE TABLE effects (n INT)`)
	exec(t, s.DB(), `CREATE TRIGGER refusal BEFORE INSERT ON retrysafe_keys FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'`)
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	must(t, err)
	_, err = retrysafe.DoTx(t.Context(), e, s, retrysafe.Call{Ref: refOf("key")}, func(ctx context.Context, tx *sql.Tx) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 201}, second(tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`))
	})
	if err == nil || !strings.Contains(err.Error(), "not today") || errors.Is(err, retrysafe.ErrTxDone) {
		t.Errorf("DoTx: %v", err)
	}
	if n := one[int](t, s.DB(), `SELECT COUNT(*) FROM effects`); n != 0 {
		t.Errorf("%d effects of an operation without an answer", n)
	}
}
