package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// hostile are defaults that a database may have for good reasons of its own, and
// under which the store's steps would be slow, unsafe or refused.
var hostile = map[string]string{
	"default_transaction_isolation": "serializable",
	"default_transaction_read_only": "on",
	"statement_timeout":             "10s",
	"lock_timeout":                  "1ms",
	"search_path":                   "elsewhere",
	"plan_cache_mode":               "force_custom_plan",
	"enable_indexscan":              "off",
	"client_min_messages":           "error",
}

// TestW20_LanesKeepTheirOwnSettings: whatever the database's defaults are, every
// step of the store is READ COMMITTED, flushed, and on the table that it was opened
// with, also on connections that it makes later.
func TestW20_LanesKeepTheirOwnSettings(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	bouncer := testservers.NewPgBouncer(t, pg, nil)
	for name, flushed := range map[string]string{"direct": "off", "direct_beside_a_standby": "remote_write", "pooled": "local"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts *pgstore.Options
			if name == "pooled" {
				opts = &pgstore.Options{PgBouncer: true}
			}
			direct, err := pg.CreateDatabase(t.Context(), name)
			must(t, err)
			url := direct
			if opts != nil {
				url = bouncer.URL(name)
			}
			s, conn := open(t, url, opts), connect(t, direct)
			e, err := retrysafe.New(s, unhurried)
			must(t, err)
			do := func(key string) (retrysafe.Outcome, error) {
				return e.Do(t.Context(), call(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
					return retrysafe.Result{Status: 201}, nil
				})
			}
			must(t, second(do("before")))

			// A table of the same name stands where the path will lead.
			exec(t, conn, `CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.retrysafe_keys (LIKE public.retrysafe_keys INCLUDING ALL)`)
			exec(t, conn, `CREATE TABLE public.seen (isolation text, flushed text, statement text, lock text)`)
			exec(t, conn, `CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO public.seen SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit'),
					current_setting('statement_timeout'), current_setting('lock_timeout'); RETURN NEW; END $$`)
			exec(t, conn, `CREATE TRIGGER note BEFORE INSERT OR UPDATE ON public.retrysafe_keys FOR EACH ROW EXECUTE FUNCTION public.note()`)
			exec(t, conn, fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = '%s'", name, flushed))
			for setting, value := range hostile {
				exec(t, conn, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", name, setting, value))
			}
			exec(t, conn, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)

			if out, err := do("before"); err != nil || !out.Replayed {
				t.Errorf("what was there is not found: %+v, %v", out, err)
			}
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					if _, err := do(fmt.Sprint(i)); err != nil {
						t.Errorf("a fresh key: %v", err)
					}
				})
			}
			large := fresh("large")
			large.Request = make([]byte, 100_000)
			if r, err := s.Create(t.Context(), large); err != nil {
				t.Errorf("a large request: %v", err)
			} else if _, err := s.Swap(t.Context(), done(r, strings.Repeat("answer", 20_000))); err != nil {
				t.Errorf("a large answer: %v", err)
			}
			wg.Wait()
			if all, err := s.List(t.Context(), retrysafe.Query{Due: true}); err != nil || len(all) != 0 {
				t.Errorf("List: %d, %v", len(all), err)
			}
			if _, err := s.Purge(t.Context(), 10); err != nil {
				t.Errorf("Purge: %v", err)
			}
			if n := one[int](t, conn, `SELECT count(*) FROM elsewhere.retrysafe_keys`); n != 0 {
				t.Errorf("%d keys went into a table of the same name", n)
			}
			if got := one[string](t, conn, `SELECT string_agg(DISTINCT concat_ws(', ', isolation, flushed, statement, lock), '; ') FROM public.seen`); got != "read committed, on, 0, 20ms" {
				t.Errorf("steps ran with isolation, synchronous_commit, statement_timeout, lock_timeout: %s", got)
			}
		})
	}
}

// Large answers are compressed by lz4 where the server has it, whatever the database's
// default is.
func TestLargeAnswersAreCompressedFast(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	conn := connect(t, url)
	exec(t, conn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_toast_compression = pglz', current_database()); END $$`)
	s := open(t, url, nil)
	got, err := s.Create(t.Context(), fresh("large"))
	must(t, err)
	must(t, second(s.Swap(t.Context(), done(got, strings.Repeat("answer ", 10_000)))))
	want := one[string](t, conn, `SELECT CASE WHEN 'lz4' = ANY (enumvals) THEN 'lz4' ELSE 'pglz' END FROM pg_settings WHERE name = 'default_toast_compression'`)
	if method := one[string](t, conn, `SELECT pg_column_compression(tail) FROM retrysafe_keys`); method != want {
		t.Errorf("a large answer is compressed by %s, want %s", method, want)
	}
	if back, err := s.Load(t.Context(), got.Ref); err != nil || len(back.Result.Body) != 70_000 {
		t.Errorf("it is read as %d bytes, %v", len(back.Result.Body), err)
	}
}

// A database whose transactions look at old snapshots by default can still be
// opened by many at once: they wait for each other and then look again.
func TestManyMayMigrateWhateverTheIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		url := testservers.Shared(t)
		exec(t, connect(t, url), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = "`+level+`"', current_database()); END $$`)
		migrateAtOnce(t, url, 8)
	}
}

// migrateAtOnce opens an empty database from many sides.
func migrateAtOnce(t *testing.T, url string, many int) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range many {
		wg.Go(func() {
			<-start
			s, err := pgstore.Open(t.Context(), url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Load(t.Context(), call("k").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("Load = %v", err)
			}
			_ = s.Close()
		})
	}
	close(start)
	wg.Wait()
}

// One commit is flushed, whatever the database's default is.
func TestOneCommitIsFlushed(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	exec(t, connect(t, url), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$`)
	b := newBank(t, url, txPolicy)
	var got string
	must(t, second(b.doTx(t.Context(), "k", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SHOW synchronous_commit`).Scan(&got)
	})))
	if got != "on" {
		t.Errorf("synchronous_commit is %s in a transaction of DoTx", got)
	}
	d, err := b.store.Durability(t.Context())
	must(t, err)
	if d.Class != "D" || !strings.Contains(d.String(), "synchronous_commit is off") {
		t.Errorf("Durability does not tell of it: %v", d)
	}
	if d, err := open(t, url+"&synchronous_commit=local", nil).Durability(t.Context()); err != nil || d.Class != "A" {
		t.Errorf("where there is no standby to wait for Durability is %v, %v", d, err)
	}
}

// A transaction that the store begins is READ COMMITTED, its commit waits for disk and
// standby, and its warnings come through, whatever the session's defaults are and whichever
// way it takes its key.
func TestOwnTransactionHasItsOwnSettings(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	for setting, want := range map[string]string{
		"synchronous_commit=off": "on, notice", "synchronous_commit=local": "on, notice", "synchronous_commit=remote_write": "on, notice", "client_min_messages=error": "on, warning",
	} {
		s := open(t, url+"&default_transaction_isolation=serializable&"+setting, nil)
		for way, take := range map[string]func(retrysafe.Tx) error{
			"Take":    func(tx retrysafe.Tx) error { return second(tx.(retrysafe.Taker).Take(t.Context(), refOf("k"))) },
			"Reserve": func(tx retrysafe.Tx) error { return second(tx.Reserve(t.Context(), refOf("k"))) },
		} {
			tx, db, err := s.BeginTx(t.Context())
			must(t, err)
			if err := take(tx); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("%s = %v", way, err)
			}
			var got string
			must(t, db.QueryRow(t.Context(), `SELECT concat_ws(', ', current_setting('transaction_isolation'), current_setting('synchronous_commit'), current_setting('client_min_messages'))`).Scan(&got))
			if got != "read committed, "+want {
				t.Errorf("%s under %s: %s", way, setting, got)
			}
			must(t, tx.Rollback(t.Context()))
		}
	}
}
