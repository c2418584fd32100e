package sqlitestore_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// announce changes the answer of r, as an operator does.
func announce(t *testing.T, s *sqlitestore.Store, r retrysafe.Record) retrysafe.Record {
	t.Helper()
	w := done(r, "right")
	w.Announce = true
	r, err := s.Swap(t.Context(), w)
	must(t, err)
	return r
}

func answered(t *testing.T, s *sqlitestore.Store, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Create(t.Context(), fresh(key))
	must(t, err)
	r, err = s.Swap(t.Context(), done(r, "wrong"))
	must(t, err)
	return r
}

func present(t *testing.T, s *sqlitestore.Store) string {
	t.Helper()
	_, cursor, err := s.Changes(t.Context(), "")
	must(t, err)
	return cursor
}

// That a change is told within a second rests on the interval of the reads. An ordinary
// request leaves no trace in the tables of changes.
func TestChangesAreReadTwiceASecond(t *testing.T) {
	t.Parallel()
	if sqlitestore.ChangeWait > 500*time.Millisecond {
		t.Errorf("changes are read every %v, which leaves too little of a second", sqlitestore.ChangeWait)
	}
	path := filepath.Join(t.TempDir(), "keys.db")
	here, there := open(t, path), open(t, path)
	cursor := present(t, here)
	r := answered(t, there, "k")
	if changed, next, err := here.Changes(t.Context(), cursor); err != nil || len(changed) > 0 || next != cursor {
		t.Errorf("after ordinary writes: %q, %q, %v", changed, next, err)
	}
	announce(t, there, r)
	if changed, _, err := here.Changes(t.Context(), cursor); err != nil || !slices.Equal(changed, []retrysafe.Ref{r.Ref}) {
		t.Errorf("after an announced one: %q, %v", changed, err)
	}
}

// A reader whose cursor is not followed by what is stored is told so.
func TestLostChangesAreTold(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"rows were dropped":             `DELETE FROM retrysafe_changes WHERE n < 3`,
		"all rows were dropped":         `DELETE FROM retrysafe_changes`,
		"the file is an older one":      `UPDATE retrysafe_last_change SET n = 0, token = x'01'; DELETE FROM retrysafe_changes`,
		"another change has the number": `UPDATE retrysafe_changes SET before = x'01' WHERE n = 2`,
		"the record was purged":         `DELETE FROM retrysafe_keys`,
		"the record cannot be read":     `UPDATE retrysafe_keys SET rec = substr(rec, 1, length(rec) - 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, filepath.Join(t.TempDir(), "keys.db"))
			r := announce(t, s, answered(t, s, "k"))
			cursor := present(t, s)
			for range 3 {
				r = announce(t, s, r)
			}
			_, err := s.DB().ExecContext(t.Context(), lose)
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
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	r := answered(t, s, "k")
	_, err := s.DB().ExecContext(t.Context(), `WITH RECURSIVE c (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 1500)
		INSERT INTO retrysafe_changes SELECT n, x'', x'', x'' FROM c; UPDATE retrysafe_last_change SET n = 1500`)
	must(t, err)
	announce(t, s, r)
	var n int
	must(t, s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM retrysafe_changes`).Scan(&n))
	if n != 1000 {
		t.Errorf("%d rows, want 1000", n)
	}
}

// Where another program migrates, the tables may not be there yet: an operator's change
// is made all the same, and the store says that it cannot tell.
func TestAnnouncedSwapWithoutTheTables(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	old := open(t, path)
	_, err := old.DB().ExecContext(t.Context(), `DROP TABLE retrysafe_changes`)
	must(t, err)
	s, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{SkipMigrations: true})
	must(t, err)
	defer s.Close()
	if r := announce(t, s, answered(t, s, "k")); string(r.Result.Body) != "right" {
		t.Errorf("got %+v", r)
	}
	if _, _, err := s.Changes(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
