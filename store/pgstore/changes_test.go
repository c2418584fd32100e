package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// completed stores an answer under a key.
func completed(t *testing.T, s *pgstore.Store, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Create(t.Context(), fresh(key))
	must(t, err)
	r, err = s.Swap(t.Context(), done(r, "wrong"))
	must(t, err)
	return r
}

// announce changes the answer of r, as an operator does.
func announce(t *testing.T, s *pgstore.Store, r retrysafe.Record) retrysafe.Record {
	t.Helper()
	w := done(r, "right")
	w.Announce = true
	r, err := s.Swap(t.Context(), w)
	must(t, err)
	return r
}

func present(t *testing.T, s *pgstore.Store) string {
	t.Helper()
	_, cursor, err := s.Changes(t.Context(), "")
	must(t, err)
	return cursor
}

// awaited reads changes until ref is among them.
func awaited(t *testing.T, s *pgstore.Store, cursor string, ref retrysafe.Ref) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		changed, next, err := s.Changes(t.Context(), cursor)
		must(t, err)
		if cursor = next; slices.Contains(changed, ref) {
			return cursor
		}
	}
	t.Fatalf("not told within a minute: %q", ref)
	return ""
}

// A change reaches a reader that waits, directly and through a pooler. That it does so
// within a second rests on the interval of the reads; the time here is only logged.
func TestChangeReachesAReaderThatWaits(t *testing.T) {
	t.Parallel()
	if pgstore.ChangeWait > 500*time.Millisecond {
		t.Errorf("changes are read every %v, which leaves too little of a second", pgstore.ChangeWait)
	}
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	for name, url := range map[string]string{
		"directly":  pg.URL("postgres"),
		"PgBouncer": testservers.NewPgBouncer(t, pg, nil).URL("postgres"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &pgstore.Options{Schema: "of " + name, PgBouncer: name == "PgBouncer"}
			here, there := open(t, url, opts), open(t, url, opts)
			cursor := present(t, here)
			for i := range 5 {
				r := completed(t, there, fmt.Sprint("k", i))
				told := make(chan string, 1)
				go func() { told <- awaited(t, here, cursor, r.Ref) }()
				time.Sleep(50 * time.Millisecond) // the reader waits, or is late: both must work
				start := time.Now()
				announce(t, there, r)
				cursor = <-told
				t.Logf("told %v after the swap", time.Since(start))
			}
		})
	}
}

// An ordinary request leaves no trace in the tables of changes.
func TestOrdinaryWritesAnnounceNothing(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	completed(t, s, "k")
	var n, rows int
	must(t, s.Pool().QueryRow(t.Context(), `SELECT n, (SELECT count(*) FROM retrysafe_changes) FROM retrysafe_last_change`).Scan(&n, &rows))
	if n != 0 || rows != 0 {
		t.Errorf("%d changes, %d rows", n, rows)
	}
}

// A reader whose cursor is not followed by what is stored is told so: rows were dropped,
// the database is another one, or a changed record is gone and its name with it.
func TestLostChangesAreTold(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"rows were dropped":                 `DELETE FROM retrysafe_changes WHERE n < 3`,
		"all rows were dropped":             `DELETE FROM retrysafe_changes`,
		"the last commits are missing":      `UPDATE retrysafe_last_change SET n = 0, token = '00000000-0000-0000-0000-000000000001'; DELETE FROM retrysafe_changes`,
		"another change has the number":     `UPDATE retrysafe_changes SET before = '00000000-0000-0000-0000-000000000001' WHERE n = 2`,
		"the record was purged":             `DELETE FROM retrysafe_keys`,
		"the record cannot be read":         `UPDATE retrysafe_keys SET head = set_byte(head, 40, 255 - get_byte(head, 40))`,
		"another change is the last of all": `UPDATE retrysafe_last_change SET n = 1, token = '00000000-0000-0000-0000-000000000001'; DELETE FROM retrysafe_changes`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, testservers.Shared(t), nil)
			r := announce(t, s, completed(t, s, "k"))
			cursor := present(t, s)
			for range 3 {
				r = announce(t, s, r)
			}
			awaited(t, s, cursor, r.Ref)
			_, err := s.Pool().Exec(t.Context(), lose)
			must(t, err)
			if changed, _, err := s.Changes(t.Context(), cursor); !errors.Is(err, retrysafe.ErrChangesLost) {
				t.Errorf("got %q, %v, want ErrChangesLost", changed, err)
			}
		})
	}
}

// The table keeps the last thousand changes.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	r := completed(t, s, "k")
	_, err := s.Pool().Exec(t.Context(), `INSERT INTO retrysafe_changes SELECT n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 1500) n;
		UPDATE retrysafe_last_change SET n = 1500`)
	must(t, err)
	cursor := present(t, s)
	awaited(t, s, cursor, announce(t, s, r).Ref)
	var n int
	must(t, s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM retrysafe_changes`).Scan(&n))
	if n != 1000 {
		t.Errorf("%d rows, want 1000", n)
	}
}

// Where another program migrates, the tables may not be there yet, or not be granted: an
// operator's change is made all the same, and the store says that it cannot tell.
func TestAnnouncedSwapWithoutTheTables(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]string{
		"no tables":     `DROP TABLE retrysafe_changes, retrysafe_last_change`,
		"no last table": `DROP TABLE retrysafe_last_change`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testservers.Shared(t)
			_, err := open(t, url, nil).Pool().Exec(t.Context(), take)
			must(t, err)
			s := open(t, url, &pgstore.Options{SkipMigrations: true})
			if r := announce(t, s, completed(t, s, "k")); string(r.Result.Body) != "right" {
				t.Errorf("got %+v", r)
			}
			if _, _, err := s.Changes(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("got %v, want ErrUnsupported", err)
			}
		})
	}
}

// The reader comes back after its connection was cut.
func TestChangesSurviveABrokenConnection(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	cursor := present(t, s)
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
