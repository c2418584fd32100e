package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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

// What cannot be read is no answer: a step that read no holder and no message would say that
// the message is another worker's, has ended or does not wait, or would lease every shard.
func TestOutboxStepThatCannotReadIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), &mysqlstore.Options{Timeout: patience})
	box := s.Outbox()
	putMessages(t, s, outbox.Message{Topic: "t", Group: "g"})
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	due, err := box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	ack := outbox.Ack{ID: due[0].ID, Shard: due[0].Shard, Group: "g", Kind: outbox.AckDelivered, Tries: 1}
	for _, c := range []struct {
		step, table string
		do          func() error
	}{
		{"an acknowledgement", "retrysafe_shards", func() error { return second(box.Ack(t.Context(), []outbox.Ack{ack})) }},
		{"an acknowledgement", "retrysafe_outbox", func() error { return second(box.Ack(t.Context(), []outbox.Ack{ack})) }},
		{"a lease", "retrysafe_shards", func() error { return second(box.Lease(t.Context(), retrysafe.Owner{2}, time.Hour)) }},
		{"a lease", "retrysafe_workers", func() error { return second(box.Lease(t.Context(), retrysafe.Owner{2}, time.Hour)) }},
		{"a read", "retrysafe_shards", func() error { return second(box.Due(t.Context(), held.Shards, 10)) }},
		{"a read", "retrysafe_outbox", func() error { return second(box.Due(t.Context(), held.Shards, 10)) }},
		{"a skip", "retrysafe_outbox", func() error { return second(box.Skip(t.Context(), outbox.SkipRequest{ID: ack.ID, Tries: 1})) }},
		{"a disposal", "retrysafe_dead", func() error { return box.Dispose(t.Context(), outbox.Disposal{ID: ack.ID, Revision: 1}) }},
	} {
		exec(t, s.DB(), `RENAME TABLE `+c.table+` TO away`)
		if err := c.do(); err == nil || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrConflict) {
			t.Errorf("%s without %s: %v", c.step, c.table, err)
		}
		exec(t, s.DB(), `RENAME TABLE away TO `+c.table)
	}
	if list, err := box.Due(t.Context(), held.Shards, 10); len(list) != 1 || err != nil {
		t.Errorf("afterwards %d messages are due, %v, want the one", len(list), err)
	}
}

// A skip that would leave a key without a state changes neither the key nor the message.
func TestSkipWithoutAStateIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), &mysqlstore.Options{Timeout: patience})
	box := s.Outbox()
	rec, err := s.Create(t.Context(), fresh("handed over"))
	must(t, err)
	putMessages(t, s, outbox.Message{Topic: "t", Settles: &rec})
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	due, err := box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	must(t, second(box.Ack(t.Context(), []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckRetry, Tries: 1, After: time.Hour}})))
	settle := done(rec, "skipped")
	settle.State = 0
	if ended, err := box.Skip(t.Context(), outbox.SkipRequest{ID: due[0].ID, Tries: 1, Settle: &settle}); err == nil {
		t.Errorf("the skip gets %+v", ended)
	}
	if got, err := s.Load(t.Context(), rec.Ref); err != nil || got.Revision != rec.Revision {
		t.Errorf("the key is %s at revision %d, %v", got.State, got.Revision, err)
	}
	if failing, err := box.Failing(t.Context(), 0, 10); len(failing) != 1 || err != nil {
		t.Errorf("%d messages are failing, %v, want the one", len(failing), err)
	}
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
