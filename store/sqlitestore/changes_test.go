package sqlitestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/changetest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// changing returns a new file.
func changing(t *testing.T) changetest.Database {
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	return changetest.Database{
		Store: s,
		Exec: func(ctx context.Context, script string) error {
			_, err := s.DB().ExecContext(ctx, script)
			return err
		},
		Rows: func(ctx context.Context) (n int, err error) {
			err = s.DB().QueryRowContext(ctx, `SELECT count(*) FROM retrysafe_changes`).Scan(&n)
			return n, err
		},
		Reopen: func(t *testing.T) changetest.Store {
			again, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{SkipMigrations: true})
			must(t, err)
			t.Cleanup(func() { _ = again.Close() })
			return again
		},
	}
}

// A change is told to another handle; ordinary writes are not.
func TestChangesAreReadTwiceASecond(t *testing.T) {
	t.Parallel()
	changetest.Quick(t, sqlitestore.ChangeWait)
	d := changing(t)
	changetest.Quiet(t, d)
	here, there := d.Store, d.Reopen(t)
	cursor := changetest.Present(t, here)
	r := changetest.Announce(t, there, changetest.Answered(t, there, "k2"))
	changetest.Await(t, here, cursor, r.Ref)
}

func TestLostChangesAreTold(t *testing.T) {
	t.Parallel()
	changetest.Lost(t, changing, map[string]string{
		"rows were dropped":             `DELETE FROM retrysafe_changes WHERE n < 3`,
		"all rows were dropped":         `DELETE FROM retrysafe_changes`,
		"the file is an older one":      `UPDATE retrysafe_last_change SET n = 0, token = x'01'; DELETE FROM retrysafe_changes`,
		"another change has the number": `UPDATE retrysafe_changes SET before = x'01' WHERE n = 2`,
		"the last change is another":    `UPDATE retrysafe_last_change SET n = 1, token = x'01'; DELETE FROM retrysafe_changes`,
		"the record was purged":         `DELETE FROM retrysafe_keys`,
		"the record cannot be read":     `UPDATE retrysafe_keys SET rec = substr(rec, 1, length(rec) - 1)`,
	})
}

// Files that were written apart, as a restored backup and the file that it replaces, have
// the same number of changes and are told apart: a reader of one does not go on in the other.
func TestChangesOfAnotherFileAreLost(t *testing.T) {
	t.Parallel()
	one, two := changing(t).Store, changing(t).Store
	var last retrysafe.Record
	for _, s := range []changetest.Store{one, two} {
		last = changetest.Announce(t, s, changetest.Answered(t, s, "k"))
	}
	cursor := changetest.Present(t, one)
	for range 2 { // the second time a change is behind the cursor
		if changed, _, err := two.Changes(t.Context(), cursor); !errors.Is(err, retrysafe.ErrChangesLost) {
			t.Errorf("the other file: %q, %v, want ErrChangesLost", changed, err)
		}
		last = changetest.Announce(t, two, last)
	}
}

func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	changetest.Bounded(t, changing(t), `WITH RECURSIVE c (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 1500)
		INSERT INTO retrysafe_changes SELECT n, x'', x'', x'' FROM c; UPDATE retrysafe_last_change SET n = 1500`)
}

func TestAnnouncedSwapWithoutTheTables(t *testing.T) {
	t.Parallel()
	changetest.Untold(t, changing, map[string]string{"no table": `DROP TABLE retrysafe_changes`})
}

// Where changes cannot be read or noted, each call says so: a reader that takes an error
// for no changes would miss some, and an announced write that is not noted is not made.
func TestChangesThatCannotBeReadAreAnError(t *testing.T) {
	t.Parallel()
	d := changing(t)
	s := d.Store.(*sqlitestore.Store)
	r := changetest.Answered(t, s, "k")
	cursor := changetest.Present(t, s)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, cursor := range []string{"", cursor} {
		if _, _, err := s.Changes(ended, cursor); !errors.Is(err, context.Canceled) {
			t.Errorf("Changes behind %q with a context that has ended = %v", cursor, err)
		}
	}
	exec(t, s.DB(), `DELETE FROM retrysafe_last_change`)
	for _, cursor := range []string{"", cursor} {
		if _, _, err := s.Changes(t.Context(), cursor); err == nil {
			t.Errorf("Changes behind %q, without the number of the last one, succeeds", cursor)
		}
	}
	w := done(r, "another answer")
	w.Announce = true
	if _, err := s.Swap(t.Context(), w); err == nil {
		t.Error("an announced write that is not noted succeeds")
	}
	if got, err := s.Load(t.Context(), r.Ref); err != nil || got.Revision != r.Revision {
		t.Errorf("the record is at revision %d, %v; want %d", got.Revision, err, r.Revision)
	}
}
