package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/changetest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// changing returns a new database.
func changing(t *testing.T) changetest.Database {
	url := testservers.Shared(t)
	s := open(t, url, nil)
	return changetest.Database{
		Store: s,
		Exec:  func(ctx context.Context, script string) error { return second(s.Pool().Exec(ctx, script)) },
		Rows: func(ctx context.Context) (n int, err error) {
			err = s.Pool().QueryRow(ctx, `SELECT count(*) FROM retrysafe_changes`).Scan(&n)
			return n, err
		},
		Reopen: func(t *testing.T) changetest.Store { return open(t, url, &pgstore.Options{SkipMigrations: true}) },
	}
}

// A change reaches a reader that waits, directly and through a pooler. That it does so
// within a second rests on the interval of the reads; the time here is only logged.
func TestChangeReachesAReaderThatWaits(t *testing.T) {
	t.Parallel()
	changetest.Quick(t, pgstore.ChangeWait)
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	for name, url := range map[string]string{
		"directly":  pg.URL("postgres"),
		"PgBouncer": testservers.NewPgBouncer(t, pg, nil).URL("postgres"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &pgstore.Options{Schema: "of " + name, PgBouncer: name == "PgBouncer"}
			here, there := open(t, url, opts), open(t, url, opts)
			cursor := changetest.Present(t, here)
			for i := range 5 {
				r := changetest.Answered(t, there, fmt.Sprint("k", i))
				told := make(chan string, 1)
				go func() { told <- changetest.Await(t, here, cursor, r.Ref) }()
				time.Sleep(50 * time.Millisecond) // the reader waits, or is late: both must work
				start := time.Now()
				changetest.Announce(t, there, r)
				cursor = <-told
				t.Logf("told %v after the swap", time.Since(start))
			}
		})
	}
}

func TestOrdinaryWritesAnnounceNothing(t *testing.T) {
	t.Parallel()
	changetest.Quiet(t, changing(t))
}

func TestLostChangesAreTold(t *testing.T) {
	t.Parallel()
	changetest.Lost(t, changing, map[string]string{
		"rows were dropped":                 `DELETE FROM retrysafe_changes WHERE n < 3`,
		"all rows were dropped":             `DELETE FROM retrysafe_changes`,
		"the last commits are missing":      `UPDATE retrysafe_last_change SET n = 0, token = '00000000-0000-0000-0000-000000000001'; DELETE FROM retrysafe_changes`,
		"another change has the number":     `UPDATE retrysafe_changes SET before = '00000000-0000-0000-0000-000000000001' WHERE n = 2`,
		"the record was purged":             `DELETE FROM retrysafe_keys`,
		"the record cannot be read":         `UPDATE retrysafe_keys SET head = set_byte(head, 40, 255 - get_byte(head, 40))`,
		"another change is the last of all": `UPDATE retrysafe_last_change SET n = 1, token = '00000000-0000-0000-0000-000000000001'; DELETE FROM retrysafe_changes`,
	})
}

// Without the row that numbers the changes nothing is followed: a reader is told what is
// missing, with a cursor and without.
func TestChangesWithoutTheLastOneAreRefused(t *testing.T) {
	t.Parallel()
	d := changing(t)
	cursor := changetest.Present(t, d.Store)
	must(t, d.Exec(t.Context(), `DELETE FROM retrysafe_last_change`))
	for _, from := range []string{"", cursor} {
		if _, _, err := d.Store.Changes(t.Context(), from); err == nil || !strings.Contains(err.Error(), "retrysafe_last_change is missing") {
			t.Errorf("from %q: %v", from, err)
		}
	}
}

// Readers use one connection after the other, and a swap that is announced waits only
// briefly for a transaction that has written the record.
func TestChangesBesideATransaction(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	r := changetest.Answered(t, s, "k")
	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	w := done(r, "by another")
	must(t, second(s.Tx(tx).Swap(t.Context(), w)))
	w.Announce = true
	if _, err := s.Swap(t.Context(), w); !errors.Is(err, retrysafe.ErrBusy) {
		t.Errorf("Swap of a record that a transaction has written = %v, want ErrBusy", err)
	}
	must(t, tx.Rollback(t.Context()))
	cursor := changetest.Present(t, s)
	for range 5 {
		changetest.Present(t, s)
	}
	changetest.Await(t, s, cursor, changetest.Announce(t, s, r).Ref)
	if n := one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%last_change l%' AND pid <> pg_backend_pid()`); n > 1 {
		t.Errorf("one reader has %d connections", n)
	}
}

func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	changetest.Bounded(t, changing(t), `INSERT INTO retrysafe_changes SELECT n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 1500) n;
		UPDATE retrysafe_last_change SET n = 1500`)
}

func TestAnnouncedSwapWithoutTheTables(t *testing.T) {
	t.Parallel()
	changetest.Untold(t, changing, map[string]string{
		"no tables":     `DROP TABLE retrysafe_changes, retrysafe_last_change`,
		"no last table": `DROP TABLE retrysafe_last_change`,
	})
}

// The reader comes back after its connection was cut.
func TestChangesSurviveABrokenConnection(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	cursor := changetest.Present(t, s)
	for i := range 3 {
		_, _, err := s.Changes(t.Context(), cursor) // it listens now
		must(t, err)
		_, err = s.Pool().Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		must(t, err)
		var r retrysafe.Record
		for end := time.Now().Add(time.Minute); ; {
			if r, err = s.Create(t.Context(), fresh(fmt.Sprint(i))); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Minute); ; {
			w := done(r, "right")
			w.Announce = true
			if _, err = s.Swap(t.Context(), w); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Minute); ; {
			changed, next, err := s.Changes(t.Context(), cursor)
			if err == nil {
				cursor = next
			}
			if err == nil && slices.Contains(changed, r.Ref) {
				break
			}
			if time.Now().After(end) {
				t.Fatal("not told within a minute")
			}
		}
	}
}

// A reader whose connection broke listens again on the next one: it is told at once, and
// not by the next read of the table. On a busy machine that may fail now and then.
func TestReaderListensAgainAfterItsConnectionBroke(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	r := changetest.Answered(t, s, "k")
	cursor := changetest.Present(t, s)
	for range 3 { // it listens now
		must(t, func() error { _, _, err := s.Changes(t.Context(), cursor); return err }())
	}
	exec(t, connect(t, s.Pool().Config().ConnString()), `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	eventually(t, "the store has connections again", func() bool {
		_, _, err := s.Changes(t.Context(), cursor)
		return err == nil && second(s.Load(t.Context(), r.Ref)) == nil
	})
	eventually(t, "a change is told at once", func() bool {
		told := make(chan string, 1)
		go func() { told <- changetest.Await(t, s, cursor, r.Ref) }()
		time.Sleep(pgstore.ChangeWait / 4) // the reader waits, or is late: then this proves nothing
		start := time.Now()
		r = changetest.Announce(t, s, r)
		cursor = <-told
		return time.Since(start) < pgstore.ChangeWait/4
	})
}
