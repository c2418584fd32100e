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
	"github.com/retrysafe/retrysafe/store/storetest"
)

// The store keeps its contract behind a pool of transactions.
func TestContractThroughPgBouncer(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	bouncer := testservers.NewPgBouncer(t, pg, nil)
	next := inSchemas(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if strings.Contains(t.Name(), "ordinary") {
			t.Skip("TestContract holds it: the statements are the same")
		}
		_, schema := next(t)
		opts := &pgstore.Options{PgBouncer: true, Schema: schema}
		s := open(t, bouncer.URL("postgres"), opts)
		return storetest.Harness{
			Store: s,
			Peers: []retrysafe.Store{open(t, bouncer.URL("postgres"), opts)},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) {
				tx, err := s.Pool().Begin(ctx)
				if err != nil {
					return nil, err
				}
				return s.Tx(tx), nil
			},
		}
	})
}

// The server's connections are others' too. What those have left behind does not
// reach the store's steps, and the store leaves nothing behind itself, also after a
// step that the server refused. Two connections are enough for all batches.
func TestPoolIsSharedWithOthers(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	bouncer := testservers.NewPgBouncer(t, pg, &testservers.PgBouncerOptions{Settings: map[string]string{"default_pool_size": "2"}})
	url := bouncer.URL("postgres")
	s := open(t, url, &pgstore.Options{PgBouncer: true})
	direct := connect(t, pg.URL("postgres"))
	exec(t, direct, `CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.retrysafe_keys (LIKE public.retrysafe_keys INCLUDING ALL)`)
	config, err := pgx.ParseConfig(url)
	must(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	// each runs a statement on both of the server's connections.
	each := func(sql string) (got []string) {
		t.Helper()
		var open []*pgx.Conn
		for range 2 { // each holds one for its transaction
			conn, err := pgx.ConnectConfig(t.Context(), config)
			must(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))
			exec(t, conn, "BEGIN")
			open = append(open, conn)
		}
		for _, conn := range open {
			got = append(got, one[string](t, conn, sql))
			exec(t, conn, "COMMIT")
		}
		return got
	}
	each(`SELECT concat(set_config('search_path', 'elsewhere', false), set_config('default_transaction_isolation', 'serializable', false),
		set_config('default_transaction_read_only', 'on', false), set_config('synchronous_commit', 'off', false), set_config('lock_timeout', '7s', false))`)
	exec(t, direct, `ALTER TABLE public.retrysafe_keys ADD CONSTRAINT sane CHECK (state > 0)`)
	e, err := retrysafe.New(s, unhurried)
	must(t, err)
	do := func(key string) (retrysafe.Outcome, error) {
		return e.Do(t.Context(), call(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201}, nil
		})
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if i%10 == 0 {
				bad := fresh(fmt.Sprint("bad ", i))
				bad.State = 0
				if _, err := s.Create(t.Context(), bad); err == nil || errors.Is(err, retrysafe.ErrExists) {
					t.Errorf("what the server refuses: %v", err)
				}
			}
			if _, err := do(fmt.Sprint(i)); err != nil {
				t.Errorf("a fresh key: %v", err)
			}
			if out, err := do(fmt.Sprint(i)); err != nil || !out.Replayed {
				t.Errorf("a replay: %+v, %v", out, err)
			}
		})
	}
	wg.Wait()
	if n := one[int](t, direct, `SELECT count(*) FROM elsewhere.retrysafe_keys`); n != 0 {
		t.Errorf("%d keys went into a table of the same name", n)
	}
	const settings = `SELECT concat_ws(', ', current_setting('search_path'), current_setting('default_transaction_isolation'), current_setting('synchronous_commit'),
		current_setting('lock_timeout'), current_setting('enable_seqscan'), current_setting('jit'), current_setting('statement_timeout'))`
	for _, got := range each(settings) {
		if got != "elsewhere, serializable, off, 7s, on, on, 0" {
			t.Errorf("the store has left its settings behind: %s", got)
		}
	}
	if n := one[int](t, direct, `SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND backend_type = 'client backend' AND pid <> pg_backend_pid()`); n > 2 {
		t.Errorf("%d connections to the server", n)
	}
}
