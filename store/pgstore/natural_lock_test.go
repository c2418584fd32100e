package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A naturalTx is a transaction of either driver that locks natural keys.
type naturalTx struct {
	lock     func(ctx context.Context, key string) error
	try      func(ctx context.Context, key string) (bool, error)
	exec     func(sql string) error
	exists   func(sql string) (bool, error)
	commit   func() error
	rollback func() error
}

type isolation struct {
	native   pgx.TxIsoLevel
	standard sql.IsolationLevel
}

var (
	readCommitted  = isolation{pgx.ReadCommitted, sql.LevelReadCommitted}
	repeatableRead = isolation{pgx.RepeatableRead, sql.LevelRepeatableRead}
	serializable   = isolation{pgx.Serializable, sql.LevelSerializable}
)

// underBothDrivers runs test with transactions of pgx and of database/sql.
func underBothDrivers(t *testing.T, test func(t *testing.T, begin func(isolation) naturalTx, watch *pgx.Conn)) {
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		pool, watch := naturalPool(t)
		test(t, func(level isolation) naturalTx {
			tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level.native})
			must(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			return naturalTx{
				lock: func(ctx context.Context, key string) error { return pgstore.LockNatural(ctx, tx, key) },
				try:  func(ctx context.Context, key string) (bool, error) { return pgstore.TryLockNatural(ctx, tx, key) },
				exec: func(sql string) error { return second(tx.Exec(t.Context(), sql)) },
				exists: func(sql string) (found bool, err error) {
					return found, tx.QueryRow(t.Context(), "SELECT EXISTS ("+sql+")").Scan(&found)
				},
				commit:   func() error { return tx.Commit(t.Context()) },
				rollback: func() error { return tx.Rollback(t.Context()) },
			}
		}, watch)
	})
	t.Run("database/sql", func(t *testing.T) {
		t.Parallel()
		pool, watch := naturalPool(t)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		test(t, func(level isolation) naturalTx {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level.standard})
			must(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			return naturalTx{
				lock: func(ctx context.Context, key string) error { return pgstore.LockNaturalSQL(ctx, tx, key) },
				try:  func(ctx context.Context, key string) (bool, error) { return pgstore.TryLockNaturalSQL(ctx, tx, key) },
				exec: func(sql string) error { return second(tx.ExecContext(t.Context(), sql)) },
				exists: func(sql string) (found bool, err error) {
					return found, tx.QueryRowContext(t.Context(), "SELECT EXISTS ("+sql+")").Scan(&found)
				},
				commit: tx.Commit, rollback: tx.Rollback,
			}
		}, watch)
	})
}

func naturalPool(t *testing.T) (*pgxpool.Pool, *pgx.Conn) {
	t.Helper()
	url := testservers.Shared(t)
	pool, err := pgxpool.New(t.Context(), url+"&pool_max_conns=12")
	must(t, err)
	t.Cleanup(pool.Close)
	watch := connect(t, url)
	exec(t, watch, `CREATE TABLE transfers (natural_key text NOT NULL)`) // no unique constraint: the lock is all there is
	return pool, watch
}

// waiters counts the sessions that wait for an advisory lock in this database.
const waiters = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// A transaction that has waited sees what the holder has committed.
func TestLockNaturalWaitsAndThenSeesWhatWasCommitted(t *testing.T) {
	t.Parallel()
	underBothDrivers(t, func(t *testing.T, begin func(isolation) naturalTx, watch *pgx.Conn) {
		const key, row = "transfer:A:B", `SELECT FROM transfers WHERE natural_key = 'transfer:A:B'`
		first, later := begin(readCommitted), begin(readCommitted)
		must(t, first.lock(t.Context(), key))
		must(t, first.exec(`INSERT INTO transfers VALUES ('transfer:A:B')`))

		done := make(chan error, 1)
		go func() { done <- later.lock(t.Context(), key) }()
		eventually(t, "the second waits", func() bool { return one[int](t, watch, waiters) == 1 })
		if locked, err := begin(readCommitted).try(t.Context(), key); locked || err != nil {
			t.Errorf("a lock that another holds was tried: %v, %v", locked, err)
		}
		must(t, begin(readCommitted).lock(t.Context(), "transfer:A:C")) // another key's lock does not wait

		must(t, first.commit())
		must(t, <-done)
		if seen, err := later.exists(row); !seen || err != nil {
			t.Errorf("after the wait the row of the holder is there: %v, %v; want true", seen, err)
		}
		must(t, later.rollback())
		if locked, err := begin(readCommitted).try(t.Context(), key); !locked || err != nil {
			t.Errorf("the lock outlives its transactions: %v, %v", locked, err)
		}
	})
}

// Many retries at once look, and one does it.
func TestLockNaturalLetsOneOfManyDoIt(t *testing.T) {
	t.Parallel()
	underBothDrivers(t, func(t *testing.T, begin func(isolation) naturalTx, watch *pgx.Conn) {
		var all sync.WaitGroup
		for range 10 {
			tx := begin(readCommitted)
			all.Go(func() {
				err := tx.lock(t.Context(), "k")
				done, looked := tx.exists(`SELECT FROM transfers`)
				if err = errors.Join(err, looked); err == nil && !done {
					err = tx.exec(`INSERT INTO transfers VALUES ('k')`)
				}
				if err = errors.Join(err, tx.commit()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := one[int](t, watch, `SELECT count(*) FROM transfers`); n != 1 {
			t.Errorf("it was done %d times", n)
		}
	})
}

// A snapshot from before the wait would make the lock worthless.
func TestLockNaturalRefusesStricterIsolation(t *testing.T) {
	t.Parallel()
	underBothDrivers(t, func(t *testing.T, begin func(isolation) naturalTx, watch *pgx.Conn) {
		must(t, begin(readCommitted).lock(t.Context(), "k")) // a refusal does not wait either
		for _, level := range []isolation{repeatableRead, serializable} {
			tx := begin(level)
			must(t, tx.exec(`INSERT INTO transfers VALUES ('k')`))
			if err := tx.lock(t.Context(), "k"); !errors.Is(err, pgstore.ErrIsolation) {
				t.Errorf("%s: %v, want ErrIsolation", level.native, err)
			}
			if err := tx.commit(); err == nil {
				t.Errorf("%s: a caller that ignores the refusal can commit", level.native)
			}
			if _, err := begin(level).try(t.Context(), "k"); !errors.Is(err, pgstore.ErrIsolation) {
				t.Errorf("%s: %v from a try that does not wait, want ErrIsolation", level.native, err)
			}
		}
		if n := one[int](t, watch, `SELECT count(*) FROM transfers`); n != 0 {
			t.Errorf("%d rows of refused transactions", n)
		}
	})
}

// A transaction that gave up waiting has no lock, and cannot commit as if it had.
func TestLockNaturalThatWasNotHadCannotCommit(t *testing.T) {
	t.Parallel()
	underBothDrivers(t, func(t *testing.T, begin func(isolation) naturalTx, watch *pgx.Conn) {
		must(t, begin(readCommitted).lock(t.Context(), "k"))
		impatient := begin(readCommitted)
		must(t, impatient.exec(`SET LOCAL lock_timeout = '1ms'`))
		must(t, impatient.exec(`INSERT INTO transfers VALUES ('k')`))
		if err := impatient.lock(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "55P03") {
			t.Errorf("a wait that was given up: %v", err)
		}
		if err := impatient.commit(); err == nil {
			t.Error("a caller that ignores the error can commit")
		}

		cancelled := begin(readCommitted)
		must(t, cancelled.exec(`INSERT INTO transfers VALUES ('k')`))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cancelled.lock(ctx, "k") }()
		eventually(t, "it waits", func() bool { return one[int](t, watch, waiters) == 1 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that was cancelled: %v", err)
		}
		if err := cancelled.commit(); err == nil {
			t.Error("a caller that ignores the error can commit")
		}
		if n := one[int](t, watch, `SELECT count(*) FROM transfers`); n != 0 {
			t.Errorf("%d rows without a lock", n)
		}
	})
}

// A transaction that a statement has ended would have the lock for that statement
// alone.
func TestLockNaturalNeedsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	pool, _ := naturalPool(t)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(t.Context())
	must(t, second(tx.Exec(t.Context(), `COMMIT`)))
	if err := pgstore.LockNatural(t.Context(), tx, "k"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("%v, want ErrTxClosed", err)
	}
}

// The store's own locks are in another space, and DoTx can hold both.
func TestLockNaturalIsApartFromTheStoresLocks(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, nil)
	watch := connect(t, url)
	engine, err := retrysafe.New(s, unhurriedBy(retrysafe.Policy{Effects: retrysafe.EffectsInTx}))
	must(t, err)
	ref := retrysafe.Ref{Scope: "acme", Key: "k"}
	_, err = retrysafe.DoTx(t.Context(), engine, s, retrysafe.Call{Ref: ref, Operation: "o"}, func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
		if err := pgstore.LockNatural(ctx, tx, "k"); err != nil {
			return retrysafe.Result{}, err
		}
		// objsubid tells the spaces apart: 1 is a single number, 2 is a pair.
		const held = `SELECT string_agg(objsubid::text, ' ' ORDER BY objsubid) FROM pg_locks WHERE locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
		if got := one[string](t, watch, held); got != "1 2" {
			t.Errorf("advisory locks in the spaces %s, want one in each: 1 2", got)
		}
		return retrysafe.Result{Status: 201}, nil
	})
	must(t, err)
}

// Behind PgBouncer the lock goes with the transaction, not with the connection.
func TestLockNaturalBehindPgBouncer(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	bouncer := testservers.NewPgBouncer(t, pg, nil)
	url := bouncer.URL("postgres") + "&default_query_exec_mode=exec"
	holder, err := connect(t, url).Begin(t.Context())
	must(t, err)
	must(t, pgstore.LockNatural(t.Context(), holder, "k"))
	other, err := connect(t, url).Begin(t.Context())
	must(t, err)
	if locked, err := pgstore.TryLockNatural(t.Context(), other, "k"); locked || err != nil {
		t.Errorf("two hold one lock: %v, %v", locked, err)
	}
	must(t, holder.Commit(t.Context()))
	if locked, err := pgstore.TryLockNatural(t.Context(), other, "k"); !locked || err != nil {
		t.Errorf("a lock that is free: %v, %v", locked, err)
	}
	must(t, other.Commit(t.Context()))
}
