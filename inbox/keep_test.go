package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/inbox"
)

func nothing[T any](context.Context, T) error { return nil }

func TestPurgeForgetsWhatIsDueInBatches(t *testing.T) {
	t.Parallel()
	everywhere(t, purges[pgx.Tx], purges[*sql.Tx])
}

func purges[T any](t *testing.T, p *place[T]) {
	b := p.ledger(t)
	for i := range 5 {
		is(t, true)(b.Once(t.Context(), withPayload(fmt.Sprint("old", i), "p"), nothing[T]))
	}
	p.run(t, `UPDATE retrysafe_inbox SET due = (SELECT min(seen) FROM retrysafe_inbox)`)
	is(t, true)(b.Once(t.Context(), payment("new"), nothing[T]))
	is(t, false)(b.Once(t.Context(), withPayload("old0", "p"), nothing[T])) // until it is purged
	for _, want := range []int{2, 2, 1, 0} {
		if n, err := b.Purge(t.Context(), 2); err != nil || n != want {
			t.Errorf("purged %d, %v; want %d", n, err, want)
		}
	}
	if n := p.count(t, "retrysafe_inbox"); n != 1 {
		t.Errorf("%d keys are left, want the new one", n)
	}
	is(t, false)(b.Once(t.Context(), payment("new"), nothing[T]))
	is(t, true)(b.Once(t.Context(), withPayload("old0", "q"), nothing[T]))
	if _, err := b.Purge(t.Context(), 0); err == nil {
		t.Error("a purge of nothing is no error")
	}
}

// The time that a key is kept is stored with it: a purge needs no configuration.
func TestKeepIsStoredWithTheKey(t *testing.T) {
	t.Parallel()
	everywhere(t, keeps[pgx.Tx], keeps[*sql.Tx])
}

func keeps[T any](t *testing.T, p *place[T]) {
	_ = p.ledger(t)
	seconds := "due - seen"
	if !strings.HasSuffix(t.Name(), "/sqlite") && !strings.HasSuffix(t.Name(), "/mysql") { // they have numbers, not times
		seconds = "extract(epoch FROM due - seen)::bigint"
	}
	for keep, want := range map[time.Duration]int{0: 30 * 86400, time.Hour: 3600, 100 * 365 * 24 * time.Hour: 100 * 365 * 86400} {
		b, err := p.open(fmt.Sprint("keeps ", keep), &inbox.Options{Keep: keep})
		must(t, err)
		is(t, true)(b.Once(t.Context(), payment("k"), nothing[T]))
		got := 0
		must(t, p.db.QueryRowContext(t.Context(), "SELECT "+seconds+" FROM retrysafe_inbox WHERE consumer = '"+fmt.Sprint("keeps ", keep)+"'").Scan(&got))
		if got != want {
			t.Errorf("a key that is to be kept for %v is kept for %d seconds, want %d", keep, got, want)
		}
	}
}

// A key that is being purged, and one that was, is a fresh one: once.
func TestPurgeBesideDeliveries(t *testing.T) {
	t.Parallel()
	everywhere(t, purgesBeside[pgx.Tx], purgesBeside[*sql.Tx])
}

func purgesBeside[T any](t *testing.T, p *place[T]) {
	b := p.ledger(t)
	forgetful, err := p.open("forgetful", nil)
	must(t, err)
	is(t, true)(b.Once(t.Context(), withPayload("kept", "p"), p.book))
	for round := range 10 {
		key := fmt.Sprint("old", round)
		is(t, true)(forgetful.Once(t.Context(), withPayload(key, "p"), nothing[T]))
		p.run(t, `UPDATE retrysafe_inbox SET due = seen WHERE consumer = 'forgetful'`)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := b.Purge(t.Context(), 10); err != nil {
				t.Error(err)
			}
		})
		for range 3 {
			all.Go(func() {
				if _, err := forgetful.Once(t.Context(), withPayload(key, "p"), nothing[T]); err != nil {
					t.Error(err)
				}
				is(t, false)(b.Once(t.Context(), withPayload("kept", "p"), p.book))
			})
		}
		all.Wait()
	}
	if n := p.count(t, "bookings"); n != 1 {
		t.Errorf("a message has %d effects", n)
	}
}

// Rows that another transaction has locked are left for a later purge, which does not wait
// for them.
func TestPurgeLeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	b := p.ledger(t)
	for _, key := range []string{"held", "free"} {
		is(t, true)(b.Once(t.Context(), payment(key), nothing[pgx.Tx]))
	}
	p.run(t, `UPDATE retrysafe_inbox SET due = seen`)
	tx, err := p.begin(t.Context())
	must(t, err)
	must(t, p.exec(t.Context(), tx, `SELECT FROM retrysafe_inbox LIMIT 1 FOR UPDATE`))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := b.Purge(ctx, 10); n != 1 || err != nil {
		t.Errorf("purged %d beside the one that is held, %v", n, err)
	}
	must(t, p.end(tx, false))
	if n, err := b.Purge(ctx, 10); n != 1 || err != nil {
		t.Errorf("purged %d that was held, %v", n, err)
	}
}

// The stored names of messages are the same in every version of this program: under
// another name every message would be applied again.
func TestStoredNamesStay(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	b := p.ledger(t)
	is(t, true)(b.Once(t.Context(), withPayload("k", "10 EUR"), nothing[*sql.Tx]))
	var id, seen string
	must(t, p.db.QueryRowContext(t.Context(), `SELECT hex(id), hex(print) FROM retrysafe_inbox`).Scan(&id, &seen))
	if id != "B4CD30E8626F04E8186C466BF320CE93" || seen != "2FCE175B6E0DE48EE331D27ABCB8B3FB" {
		t.Errorf("the message is stored as %s, its payload as %s", id, seen)
	}
}

func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, migrates[pgx.Tx], migrates[*sql.Tx])
}

func migrates[T any](t *testing.T, p *place[T]) {
	b, err := p.open("ledger", nil)
	must(t, err)
	if _, err := b.Once(t.Context(), payment("k"), nothing[T]); err == nil {
		t.Error("without its tables an inbox accepts messages")
	}
	if _, err := b.Purge(t.Context(), 1); err == nil {
		t.Error("a purge that fails says that nothing is due")
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if err := b.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	is(t, true)(b.Once(t.Context(), payment("k"), nothing[T]))
	must(t, b.Migrate(t.Context()))
	is(t, false)(b.Once(t.Context(), payment("k"), nothing[T]))

	p.run(t, `INSERT INTO retrysafe_inbox_schema VALUES (99)`)
	if err := b.Migrate(t.Context()); !errors.Is(err, inbox.ErrNewerSchema) {
		t.Errorf("%v, want ErrNewerSchema", err)
	}
}

// What is printed leaves the database as Migrate does.
func TestPrintedMigrations(t *testing.T) {
	t.Parallel()
	everywhere(t, prints[pgx.Tx], prints[*sql.Tx])
}

func prints[T any](t *testing.T, p *place[T]) {
	b, err := p.open("ledger", nil)
	must(t, err)
	script, err := b.PrintMigrations()
	must(t, err)
	p.run(t, script)
	must(t, b.Migrate(t.Context())) // nothing is to be done
	if n := p.count(t, "retrysafe_inbox_schema"); n != 1 {
		t.Errorf("%d versions, want 1", n)
	}
	is(t, true)(b.Once(t.Context(), payment("k"), nothing[T]))
	is(t, false)(b.Once(t.Context(), payment("k"), nothing[T]))
}

func TestSchemasAreApart(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	opts := &inbox.Options{Schema: `strange "schema"`}
	b, err := p.open("ledger", opts)
	must(t, err)
	must(t, b.Migrate(t.Context()))
	is(t, true)(b.Once(t.Context(), payment("k"), nothing[pgx.Tx]))
	is(t, false)(b.Once(t.Context(), payment("k"), nothing[pgx.Tx]))
	if n, err := b.Purge(t.Context(), 1); n != 0 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	is(t, true)(p.ledger(t).Once(t.Context(), payment("k"), nothing[pgx.Tx]))

	other := pgxPlace(t, postgresURL(t))
	printed, err := other.open("ledger", opts)
	must(t, err)
	script, err := printed.PrintMigrations()
	must(t, err)
	other.run(t, script)
	is(t, true)(printed.Once(t.Context(), payment("k"), nothing[pgx.Tx]))
}

// A role with the rights to read and write needs no more, once the tables are there.
func TestTheRightsOfAConsumer(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	b := p.ledger(t)
	p.run(t, `DO $$ BEGIN CREATE ROLE inbox_clerk; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	t.Cleanup(func() {
		_, _ = p.db.ExecContext(context.Background(), `DROP OWNED BY inbox_clerk; DROP ROLE inbox_clerk`)
	})
	p.run(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON retrysafe_inbox TO inbox_clerk; GRANT SELECT ON retrysafe_inbox_schema TO inbox_clerk; GRANT INSERT ON bookings TO inbox_clerk`)
	tx, err := p.begin(t.Context())
	must(t, err)
	must(t, p.exec(t.Context(), tx, `SET LOCAL ROLE inbox_clerk`))
	is(t, true)(b.OnceTx(t.Context(), tx, withPayload("k", "p"), p.book))
	is(t, false)(b.OnceTx(t.Context(), tx, withPayload("k", "p"), p.book))
	must(t, p.end(tx, true))
}
