package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	migrateAtOnce(t, url, 16)
	if n := one[int](t, connect(t, url), `SELECT count(*) FROM retrysafe_schema`); n != 5 {
		t.Errorf("the schema has %d versions, want each of the four once", n)
	}
}

// catalogue is all that there is in the database, and when it was last changed.
const catalogue = `SELECT string_agg(concat_ws(' ', relname, relkind, xmin, relnatts), ', ' ORDER BY oid) FROM pg_class WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pg_toast'::regnamespace)`

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	must(t, second(s.Create(t.Context(), fresh("k"))))
	exec(t, conn, `INSERT INTO retrysafe_schema VALUES (99)`)
	before := one[string](t, conn, catalogue)
	_, err := pgstore.Open(t.Context(), url, nil)
	if !errors.Is(err, pgstore.ErrNewerSchema) || !strings.Contains(err.Error(), "upgrade the program") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Open = %v", err)
	}
	if err := pgstore.Migrate(t.Context(), s.Pool(), ""); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("Migrate = %v", err)
	}
	if after := one[string](t, conn, catalogue); after != before {
		t.Errorf("something was changed:\n%s\n%s", before, after)
	}
	// A handle that was opened before goes on: the next version must let it.
	if _, err := s.Load(t.Context(), call("k").Ref); err != nil {
		t.Errorf("an old handle: %v", err)
	}
	skips, err := pgstore.Open(t.Context(), url, &pgstore.Options{SkipMigrations: true})
	if err != nil {
		t.Fatalf("a caller that migrates the schema itself is refused: %v", err)
	}
	_ = skips.Close()
}

func TestMigrateInATransactionOfTheCallers(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	conn := connect(t, url)
	for _, schema := range []string{"", "Payments' \"keys\""} {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		must(t, pgstore.MigrateTx(t.Context(), tx, schema))
		must(t, tx.Rollback(t.Context()))
		if _, err := pgstore.Open(t.Context(), url, &pgstore.Options{Schema: schema, SkipMigrations: true}); err == nil || !strings.Contains(err.Error(), "run the migrations") {
			t.Errorf("Open without a schema = %v", err)
		}
		tx, err = conn.Begin(t.Context())
		must(t, err)
		must(t, pgstore.MigrateTx(t.Context(), tx, schema))
		must(t, pgstore.MigrateTx(t.Context(), tx, schema)) // the second time there is nothing to do
		must(t, tx.Commit(t.Context()))
		works(t, open(t, url, &pgstore.Options{Schema: schema, SkipMigrations: true}))
		works(t, open(t, url, &pgstore.Options{Schema: schema}))
	}
	if n := one[int](t, conn, `SELECT count(*) FROM pg_tables WHERE tablename = 'retrysafe_keys'`); n != 2 {
		t.Errorf("%d tables, want one in each schema", n)
	}
}

// works takes each step once.
func works(t *testing.T, s *pgstore.Store) {
	t.Helper()
	ctx := t.Context()
	r, err := s.Create(ctx, fresh("works"))
	if errors.Is(err, retrysafe.ErrExists) {
		r, err = s.Load(ctx, r.Ref)
	}
	must(t, err)
	if r.State == retrysafe.StateInProgress {
		must(t, second(s.Swap(ctx, done(r, "answer"))))
	}
	must(t, second(s.List(ctx, retrysafe.Query{Due: true})))
	must(t, second(s.Purge(ctx, 1)))
	if n, err := s.Count(ctx, "tenant"); n < 1 || err != nil {
		t.Errorf("Count = %d, %v", n, err)
	}
	e, err := retrysafe.New(s, unhurriedBy(txPolicy))
	must(t, err)
	must(t, second(retrysafe.DoTx(ctx, e, s, call("works in one commit"), func(context.Context, pgx.Tx) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 201}, nil
	})))
}

// The printed schema runs as it is, and then nothing is left to be done: a role
// that may not change a schema opens the store.
func TestPrintedMigrationsAreTheWholeSchema(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "Payments' \"keys\""} {
		url := testservers.Shared(t)
		conn := connect(t, url)
		script, err := pgstore.PrintMigrations(schema)
		must(t, err)
		if _, err := conn.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("the printed schema does not run: %v\n%s", err, script)
		}
		in := "public"
		if schema != "" {
			in = pgx.Identifier{schema}.Sanitize()
		}
		role := newRole(t, conn)
		exec(t, conn, `GRANT USAGE ON SCHEMA `+in+` TO `+role)
		exec(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON `+in+`.retrysafe_keys TO `+role)
		exec(t, conn, `GRANT SELECT ON `+in+`.retrysafe_schema TO `+role)
		before := one[string](t, conn, catalogue)
		works(t, open(t, as(t, url, role), &pgstore.Options{Schema: schema}))
		if after := one[string](t, conn, catalogue); after != before {
			t.Errorf("Open has changed what was printed:\n%s\n%s", before, after)
		}
		// It is the same that Open would have made.
		other := testservers.Shared(t)
		open(t, other, &pgstore.Options{Schema: schema})
		const shape = `SELECT string_agg(concat_ws(' ', n.nspname, c.relname, c.reloptions, a.attname, a.atttypid::regtype, a.attnotnull), ', ' ORDER BY n.nspname, c.relname, a.attnum)
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname LIKE 'retrysafe%' AND a.attnum > 0`
		if printed, made := one[string](t, conn, shape), one[string](t, connect(t, other), shape); printed != made {
			t.Errorf("printed is\n%s\nmade is\n%s", printed, made)
		}
	}
}

// A role that may not change the schema is told what to do, in one line; once it
// was done the role needs no option to go on.
func TestRoleThatMayNotMigrateIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "payments"} {
		url := testservers.Shared(t)
		conn := connect(t, url)
		exec(t, conn, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`) // before version 15 every role has it
		role := newRole(t, conn)
		opts := &pgstore.Options{Schema: schema}
		before := one[string](t, conn, `SELECT coalesce((`+catalogue+`), '')`)
		_, err := pgstore.Open(t.Context(), as(t, url, role), opts)
		if err == nil || !strings.Contains(err.Error(), "PrintMigrations") || !strings.Contains(err.Error(), "GRANT") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("Open = %v; want the way out, in one line", err)
		}
		if after := one[string](t, conn, `SELECT coalesce((`+catalogue+`), '')`); after != before {
			t.Errorf("something is left of it: %s", after)
		}
		works(t, open(t, url, opts)) // as the owner
		if s, err := pgstore.Open(t.Context(), as(t, url, role), opts); err == nil {
			_, err = s.Create(t.Context(), fresh("k"))
			_ = s.Close()
			if err == nil || !strings.Contains(err.Error(), "GRANT") {
				t.Errorf("without a right to the table: %v", err)
			}
		} else if !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("without a right to the table: %v", err)
		}
		// Word for word what the error said.
		_, grants, _ := strings.Cut(err.Error(), "and then ")
		for _, grant := range strings.Split(grants, "; ") {
			exec(t, conn, grant)
		}
		granted := open(t, as(t, url, role), opts)
		works(t, granted)
		_, _, changes := granted.Changes(t.Context(), "")
		if receipts := second(granted.Outbox().Receipts(t.Context(), outbox.ReceiptQuery{Limit: 1})); changes != nil || receipts != nil {
			t.Errorf("with what was granted: %v, %v", changes, receipts)
		}
		works(t, open(t, as(t, url, role), &pgstore.Options{Schema: schema, SkipMigrations: true}))
	}
}

func TestRowsCarryTheirVersion(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, nil)
	must(t, second(s.Create(t.Context(), fresh("k"))))
	if got := one[string](t, connect(t, url), `SELECT concat_ws(' ', get_byte(head, 0) >> 4, get_byte(tail, 0) >> 4, get_byte(tail, 0) & 15) FROM retrysafe_keys`); got != "1 1 1" {
		t.Errorf("layout of head and tail, version of the record: %s", got)
	}
}

// TestW60_MigrationUnderLoad: while operations run by old handles another version
// migrates; nothing fails, nothing runs twice, and both versions go on side by
// side. Only a program of the old version that starts now is refused.
//
// It changes the migrations of the whole program, so it runs alone.
func TestW60_MigrationUnderLoad(t *testing.T) {
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	var next, failed atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint(next.Add(1))
				do := b.do
				if len(key)%2 == 0 {
					do = func(ctx context.Context, key string) (retrysafe.Outcome, error) { return b.doTx(ctx, key, nil) }
				}
				if out, err := do(t.Context(), key); err != nil || out.Replayed {
					failed.Add(1)
					t.Errorf("%s under a migration: %+v, %v", key, out, err)
				}
				if out, err := b.do(t.Context(), key); err != nil || !out.Replayed {
					failed.Add(1)
					t.Errorf("the replay of %s under a migration: %+v, %v", key, out, err)
				}
			}
		})
	}
	progress := func(n int64) {
		t.Helper()
		to := next.Load() + n
		eventually(t, "the load goes on", func() bool { return next.Load() >= to || failed.Load() > 0 })
	}
	progress(100)

	// The next version adds a column and an index that the old one does not know.
	all, err := nextMigrations()
	must(t, err)
	all["migrations/0006_note.sql"].Data = []byte(`ALTER TABLE {keys} ADD COLUMN note text; ALTER TABLE {keys} ADD COLUMN counted integer NOT NULL DEFAULT 7;`)
	undo := pgstore.SetMigrations(all)
	defer undo()
	migrateAtOnce(t, url, 4)
	newer := open(t, url, nil)
	progress(100)
	works(t, newer)
	undo()
	if _, err := pgstore.Open(t.Context(), url, nil); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("the old version starts: %v", err)
	}
	progress(100)
	close(stop)
	load.Wait()

	// What one version has stored the other replays.
	e, err := retrysafe.New(newer, unhurriedBy(txPolicy))
	must(t, err)
	for i := range next.Load() {
		out, err := e.Do(t.Context(), call(fmt.Sprint(i+1)), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{}, errors.New("it ran again")
		})
		if err != nil || !out.Replayed {
			t.Fatalf("%d by the new version: %+v, %v", i+1, out, err)
		}
	}
	works(t, b.store)
	if twice := one[int](t, b.conn, `SELECT count(*) - count(DISTINCT key) FROM effects`); twice != 0 {
		t.Errorf("%d effects are there twice", twice)
	}
	if n := one[int](t, b.conn, `SELECT count(*) FROM retrysafe_keys WHERE counted = 7`); int64(n) < next.Load() {
		t.Errorf("%d rows have the new column, of %d", n, next.Load())
	}
}

// TestW60_LockedTableLosesNoAnswer: while another session locks the table again and again, as
// a migration or a manual repair does, and for longer than a batch waits, every operation ends
// with its answer, or is refused with nothing done and may be sent again. Of a batch that is
// refused half way, what was done before stays done.
func TestW60_LockedTableLosesNoAnswer(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	b, locker := newBank(t, url, txPolicy), connect(t, url)
	var next atomic.Int64
	var over atomic.Bool
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for !over.Load() {
				key := fmt.Sprint(next.Add(1))
				for _, replayed := range []bool{false, true} {
					out, err := b.do(t.Context(), key)
					for errors.Is(err, retrysafe.ErrUnavailable) && (replayed || !b.isBooked(t, key)) {
						out, err = b.do(t.Context(), key)
					}
					if err != nil || out.Replayed != replayed {
						t.Errorf("%s beside a lock: %+v, %v; want a replay: %t", key, out, err, replayed)
					}
				}
			}
		})
	}
	for i := 0; i < 40 && !t.Failed(); i++ {
		exec(t, locker, `BEGIN; LOCK TABLE retrysafe_keys IN ACCESS EXCLUSIVE MODE`)
		time.Sleep(time.Duration(5+i) * time.Millisecond) // a batch waits for 20 ms
		exec(t, locker, `COMMIT`)
		time.Sleep(time.Duration(i%7) * time.Millisecond)
	}
	over.Store(true)
	load.Wait()
}
