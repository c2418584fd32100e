package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// waits selects the sessions that wait for another transaction.
const waits = `pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`

// While the first delivery's transaction is open the second waits. What it reports
// depends on how the first ends. The inbox's own transactions are READ COMMITTED, also if
// the database's default is stricter.
func TestTheSecondDeliveryWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits=%v", commits), func(t *testing.T) {
			t.Parallel()
			const strict = "&default_transaction_isolation=serializable"
			t.Run("pgx", func(t *testing.T) { secondWaits(t, pgxPlace(t, postgresURL(t)+strict), commits) })
			t.Run("postgres", func(t *testing.T) { secondWaits(t, postgresPlace(t, postgresURL(t)+strict), commits) })
		})
	}
}

func secondWaits[T any](t *testing.T, p *place[T], commits bool) {
	b := p.ledger(t)
	first, err := p.begin(t.Context())
	must(t, err)
	is(t, true)(b.OnceTx(t.Context(), first, withPayload("k", "same"), p.book))
	type outcome struct {
		fresh bool
		err   error
	}
	second := make(chan outcome, 1)
	go func() {
		fresh, err := b.Once(t.Context(), withPayload("k", "same"), p.book)
		second <- outcome{fresh, err}
	}()
	eventually(t, "the second waits", func() bool { return p.count(t, waits) == 1 })
	is(t, true)(b.Once(t.Context(), payment("other"), p.book)) // other messages do not
	must(t, p.end(first, commits))
	got := <-second
	is(t, !commits)(got.fresh, got.err)
	if n := p.count(t, "bookings"); n != 2 {
		t.Errorf("two messages have %d effects", n)
	}
}

// In SQLite it waits for the write lock, before it has read anything.
func TestTheSecondDeliveryWaitsForTheFirstInSQLite(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		p := sqlitePlace(t)
		b := p.ledger(t)
		entered, leave := make(chan struct{}), make(chan error)
		var all sync.WaitGroup
		all.Go(func() {
			_, _ = b.Once(t.Context(), payment("k"), func(ctx context.Context, tx *sql.Tx) error {
				close(entered)
				return errors.Join(p.book(ctx, tx), <-leave)
			})
		})
		<-entered
		all.Go(func() { is(t, !commits)(b.Once(t.Context(), payment("k"), p.book)) })
		if commits {
			leave <- nil
		} else {
			leave <- errors.New("broken")
		}
		all.Wait()
		if n := p.count(t, "bookings"); n != 1 {
			t.Errorf("a message has %d effects", n)
		}
	}
}

// A deadlock of fn's own statements rolls the transaction back and is returned. Fn is not
// run again: it may have done things outside of the transaction.
func TestADeadlockInsideFnIsReturned(t *testing.T) {
	t.Parallel()
	p := mysqlPlace(t)
	b := p.ledger(t)
	p.run(t, `CREATE TABLE accounts (name varchar(8) PRIMARY KEY, balance int)`)
	p.run(t, `INSERT INTO accounts VALUES ('a', 0), ('b', 0)`)
	rival, err := p.begin(t.Context())
	must(t, err)
	for range 8 { // the server rolls the transaction back that has written less
		must(t, p.exec(t.Context(), rival, `INSERT INTO bookings SELECT 'r' FROM accounts AS x, accounts AS y, accounts AS z`))
	}
	must(t, p.exec(t.Context(), rival, `UPDATE accounts SET balance = 1 WHERE name = 'b'`))
	runs, crossed := 0, make(chan error, 1)
	fresh, err := b.Once(t.Context(), payment("k"), func(ctx context.Context, tx *sql.Tx) error {
		if runs++; runs > 1 {
			return nil
		}
		if err := p.exec(ctx, tx, `UPDATE accounts SET balance = 2 WHERE name = 'a'`); err != nil {
			return err
		}
		go func() { crossed <- p.exec(t.Context(), rival, `UPDATE accounts SET balance = 1 WHERE name = 'a'`) }()
		return p.exec(ctx, tx, `UPDATE accounts SET balance = 2 WHERE name = 'b'`)
	})
	if fresh || runs != 1 || err == nil || !strings.Contains(err.Error(), "Error 1213 (40001)") {
		t.Fatalf("fresh: %v, %v, after %d runs of fn; want the deadlock, after one", fresh, err, runs)
	}
	must(t, <-crossed)
	must(t, p.end(rival, false))
	is(t, true)(b.Once(t.Context(), payment("k"), p.book)) // the next delivery
}

// A stricter transaction cannot see what it has waited for. It fails, and knows the
// next time.
func TestStricterIsolationFailsAndKnowsTheNextTime(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			p := pgxPlace(t, postgresURL(t))
			b := p.ledger(t)
			strict := func() pgx.Tx {
				tx, err := p.begin(t.Context())
				must(t, err)
				must(t, p.exec(t.Context(), tx, `SET TRANSACTION ISOLATION LEVEL `+string(level)))
				must(t, p.exec(t.Context(), tx, `SELECT FROM bookings`)) // here is its snapshot
				return tx
			}
			tx := strict()
			is(t, true)(b.Once(t.Context(), payment("k"), p.book))
			var failure *pgconn.PgError
			if _, err := b.OnceTx(t.Context(), tx, payment("k"), p.book); !errors.As(err, &failure) || failure.Code != "40001" {
				t.Errorf("%v, want a serialization failure", err)
			}
			again := strict()
			is(t, false)(b.OnceTx(t.Context(), again, payment("k"), p.book))
			must(t, p.end(again, true))
			if n := p.count(t, "bookings"); n != 1 {
				t.Errorf("a message has %d effects", n)
			}
		})
	}
}

// The key must never be committed by itself.
func TestATransactionThatHasEndedIsRefused(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	b := p.ledger(t)
	tx, err := p.begin(t.Context())
	must(t, err)
	must(t, p.exec(t.Context(), tx, `COMMIT`))
	if _, err := b.OnceTx(t.Context(), tx, payment("k"), p.book); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("%v, want ErrTxClosed", err)
	}
	is(t, true)(b.Once(t.Context(), payment("k"), p.book))
}

// An error that fn swallows has broken the transaction all the same.
func TestAFailedStatementCannotBeCommitted(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	b := p.ledger(t)
	fresh, err := b.Once(t.Context(), payment("k"), func(ctx context.Context, tx pgx.Tx) error {
		_ = p.exec(ctx, tx, `INSERT INTO nowhere VALUES (1)`)
		return nil
	})
	if fresh || !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("%v, %v; want an error of the commit", fresh, err)
	}
	is(t, true)(b.Once(t.Context(), payment("k"), p.book))
}

// In MySQL a statement may end the transaction, as a deadlock does, and what follows is
// committed by itself: fn that swallows that has applied nothing.
func TestATransactionThatFnHasEndedCountsForNothing(t *testing.T) {
	t.Parallel()
	p := mysqlPlace(t)
	b := p.ledger(t)
	swallow := func(ctx context.Context, tx *sql.Tx) error {
		must(t, p.book(ctx, tx))
		return p.exec(ctx, tx, `ROLLBACK`)
	}
	fresh, err := b.Once(t.Context(), payment("k"), swallow)
	if fresh || !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("Once: %v, %v; want ErrTxDone", fresh, err)
	}
	tx, err := p.begin(t.Context())
	must(t, err)
	if fresh, err = b.OnceTx(t.Context(), tx, payment("k"), swallow); fresh || !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("OnceTx: %v, %v; want ErrTxDone", fresh, err)
	}
	is(t, true)(b.Once(t.Context(), payment("k"), p.book)) // the next delivery
}

// A consumer acknowledges a message once Once returns, so its commit must be durable
// by then.
func TestTheCommitIsDurableWhateverTheSessionSays(t *testing.T) {
	t.Parallel()
	for _, session := range []string{"off", "local", "remote_write", "on", "remote_apply"} {
		p := pgxPlace(t, postgresURL(t)+"&synchronous_commit="+session)
		b := p.ledger(t)
		is(t, true)(b.Once(t.Context(), payment("k"), func(ctx context.Context, tx pgx.Tx) error {
			var got string
			must(t, tx.QueryRow(ctx, `SHOW synchronous_commit`).Scan(&got))
			if want := map[string]string{"remote_apply": "remote_apply"}[session]; got != want && (want != "" || got != "on") {
				t.Errorf("a session with %s commits with %s", session, got)
			}
			return nil
		}))
	}
}

// The server is killed again and again while messages are delivered until they are
// acknowledged. What was acknowledged is there, and nothing is there twice.
func TestEachMessageIsAppliedOnceThoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	p := pgxPlace(t, pg.URL("postgres")+"&pool_max_conns=10")
	b := p.ledger(t)
	const consumers, kills = 4, 4
	var acknowledged atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for c := range consumers {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				m := inbox.Message{Scope: fmt.Sprint(c % 2), Key: fmt.Sprint(i), Payload: []byte("same")} // two consumers get each message
				for {
					_, err := b.Once(context.Background(), m, func(ctx context.Context, tx pgx.Tx) error {
						return p.exec(ctx, tx, fmt.Sprintf(`INSERT INTO bookings VALUES ('%s/%s')`, m.Scope, m.Key))
					})
					if errors.Is(err, inbox.ErrMismatch) {
						t.Error(err)
					}
					if err == nil {
						acknowledged.Add(1)
						break
					}
				}
			}
		})
	}
	for range kills {
		goal := acknowledged.Load() + 50 + rand.Int64N(200)
		eventually(t, "messages are applied", func() bool { return acknowledged.Load() >= goal })
		must(t, pg.Kill())
		must(t, pg.Restart(t.Context()))
	}
	stop()
	all.Wait()
	bookings, distinct, keys := p.count(t, "bookings"), p.count(t, "(SELECT DISTINCT what FROM bookings) AS each"), p.count(t, "retrysafe_inbox")
	t.Logf("%d acknowledgements, %d messages, %d kills", acknowledged.Load(), distinct, kills)
	if bookings != distinct || bookings != keys || int64(bookings) > acknowledged.Load() || int64(bookings)*2 < acknowledged.Load() {
		t.Errorf("%d effects of %d messages under %d keys, after %d acknowledgements", bookings, distinct, keys, acknowledged.Load())
	}
}

// Behind PgBouncer statements are not prepared, and arguments are sent as text.
func TestEveryWayOfSendingStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "describe_exec", "cache_describe"} {
		p := pgxPlace(t, postgresURL(t)+"&default_query_exec_mode="+mode)
		b := p.ledger(t)
		is(t, true)(b.Once(t.Context(), withPayload("k", "same"), p.book))
		is(t, false)(b.Once(t.Context(), withPayload("k", "same"), p.book))
		is(t, true)(b.Once(t.Context(), payment("bare"), p.book))
		if _, err := b.Once(t.Context(), withPayload("k", "other"), p.book); !errors.Is(err, inbox.ErrMismatch) {
			t.Errorf("%s: %v, want ErrMismatch", mode, err)
		}
		if _, err := b.Purge(t.Context(), 10); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
