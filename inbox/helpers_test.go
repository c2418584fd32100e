package inbox_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/retrysafe/retrysafe/inbox"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { testservers.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what must come, however busy the machine is.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A place is a database, seen through one driver.
type place[T any] struct {
	db    *sql.DB // for a look from outside
	open  func(consumer string, opts *inbox.Options) (*inbox.Inbox[T], error)
	begin func(ctx context.Context) (T, error)
	exec  func(ctx context.Context, tx T, sql string) error
	end   func(tx T, commit bool) error
}

// ledger opens the inbox of the consumer "ledger", whose effects are bookings.
func (p *place[T]) ledger(t testing.TB) *inbox.Inbox[T] {
	t.Helper()
	b, err := p.open("ledger", nil)
	must(t, err)
	must(t, b.Migrate(t.Context()))
	p.run(t, `CREATE TABLE IF NOT EXISTS bookings (what text)`)
	return b
}

func (p *place[T]) run(t testing.TB, sql string) {
	t.Helper()
	if _, err := p.db.ExecContext(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (p *place[T]) count(t testing.TB, from string) (n int) {
	t.Helper()
	must(t, p.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+from).Scan(&n))
	return n
}

// book is an effect.
func (p *place[T]) book(ctx context.Context, tx T) error {
	return p.exec(ctx, tx, `INSERT INTO bookings VALUES ('k')`)
}

// is checks what became of a delivery.
func is(t testing.TB, want bool) func(got bool, err error) {
	t.Helper()
	return func(got bool, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("fresh: %v, %v; want %v", got, err, want)
		}
	}
}

func payment(key string) inbox.Message { return inbox.Message{Scope: "acme", Key: key} }

func withPayload(key, payload string) inbox.Message {
	return inbox.Message{Scope: "acme", Key: key, Payload: []byte(payload)}
}

// postgresURL keeps a few connections, since many tests share the server.
func postgresURL(t testing.TB) string { return testservers.Shared(t) + "&pool_max_conns=8" }

func pgxPlace(t testing.TB, url string) *place[pgx.Tx] {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close(); pool.Close() })
	return &place[pgx.Tx]{
		db: db,
		open: func(consumer string, opts *inbox.Options) (*inbox.Inbox[pgx.Tx], error) {
			return inbox.PGX(pool, consumer, opts)
		},
		begin: pool.Begin,
		exec: func(ctx context.Context, tx pgx.Tx, sql string) error {
			_, err := tx.Exec(ctx, sql)
			return err
		},
		end: func(tx pgx.Tx, commit bool) error {
			if commit {
				return tx.Commit(context.Background())
			}
			return tx.Rollback(context.Background())
		},
	}
}

func sqlPlace(db *sql.DB, open func(*sql.DB, string, *inbox.Options) (*inbox.Inbox[*sql.Tx], error)) *place[*sql.Tx] {
	return &place[*sql.Tx]{
		db: db,
		open: func(consumer string, opts *inbox.Options) (*inbox.Inbox[*sql.Tx], error) {
			return open(db, consumer, opts)
		},
		begin: func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) },
		exec: func(ctx context.Context, tx *sql.Tx, sql string) error {
			_, err := tx.ExecContext(ctx, sql)
			return err
		},
		end: func(tx *sql.Tx, commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		},
	}
}

func postgresPlace(t testing.TB, url string) *place[*sql.Tx] {
	t.Helper()
	return sqlPlace(pgxPlace(t, url).db, inbox.Postgres)
}

func sqlitePlace(t testing.TB) *place[*sql.Tx] {
	t.Helper()
	q := url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(20000)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "inbox.db")+"?"+q.Encode())
	must(t, err)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { _ = db.Close() })
	return sqlPlace(db, inbox.SQLite)
}

func mysqlPlace(t testing.TB) *place[*sql.Tx] {
	t.Helper()
	db, err := sql.Open("mysql", testservers.SharedMariaDB(t)+"?tx_isolation=%27READ-COMMITTED%27&multiStatements=true")
	must(t, err)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { _ = db.Close() })
	return sqlPlace(db, inbox.MySQL)
}

// everywhere runs a test in each database, under each driver.
func everywhere(t *testing.T, native func(*testing.T, *place[pgx.Tx]), standard func(*testing.T, *place[*sql.Tx])) {
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		native(t, pgxPlace(t, postgresURL(t)))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		standard(t, postgresPlace(t, postgresURL(t)))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		standard(t, sqlitePlace(t))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		standard(t, mysqlPlace(t))
	})
}
