package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

var (
	_ storemove.Source      = (*sqlitestore.Store)(nil)
	_ storemove.Destination = (*sqlitestore.Store)(nil)
)

var mover = retrysafe.Owner{7}

// names are the keys of what Written or Retire tells of.
func names(written []retrysafe.Record, gone []retrysafe.Ref) (all []string) {
	for _, r := range written {
		all = append(all, r.Key)
	}
	for _, ref := range gone {
		all = append(all, "no "+ref.Key)
	}
	slices.Sort(all)
	return all
}

// retire retires s and returns what was left to copy.
func retire(ctx context.Context, s *sqlitestore.Store) (rest []string, err error) {
	err = s.Retire(ctx, mover, "elsewhere", func(_ context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
		rest = append(rest, names(written, gone)...)
		return nil
	})
	return rest, err
}

// Whoever writes, in whatever way, is followed. Who only reads is not.
func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, other := open(t, path), open(t, path)
	old := map[string]retrysafe.Record{}
	for _, key := range []string{"read", "settled", "claimed", "in a transaction", "purged", "purged and back"} {
		r, err := s.Create(t.Context(), fresh(key))
		must(t, err)
		old[key] = r
	}
	source, err := s.Follow(t.Context(), mover)
	must(t, err)
	read := fresh("read")
	read.Owner = retrysafe.Owner{2}
	if _, err := s.Create(t.Context(), read); !errors.Is(err, retrysafe.ErrExists) {
		t.Fatal(err)
	}
	must(t, second(other.Create(t.Context(), fresh("new"))))
	must(t, second(s.Swap(t.Context(), done(old["settled"], "x"))))
	claim := old["claimed"]
	claim.Claim = retrysafe.Owner{1}
	must(t, second(other.Swap(t.Context(), claim)))
	within(t, s, (*sql.Tx).Commit, func(tx *sqlitestore.Tx) error {
		return second(tx.Swap(t.Context(), done(old["in a transaction"], "x")))
	})
	within(t, s, (*sql.Tx).Rollback, func(tx *sqlitestore.Tx) error { return second(tx.Create(t.Context(), fresh("rolled back"))) })
	for _, key := range []string{"purged", "purged and back"} {
		gone := done(old[key], "x")
		gone.Term = -time.Second
		must(t, second(s.Swap(t.Context(), gone)))
	}
	if n, err := other.Purge(t.Context(), 10); n != 2 || err != nil {
		t.Fatalf("Purge = %d, %v", n, err)
	}
	must(t, second(s.Create(t.Context(), fresh("purged and back"))))

	var got []string
	for {
		written, gone, err := s.Written(t.Context(), mover, 1)
		must(t, err)
		if len(written)+len(gone) == 0 {
			break
		}
		got = append(got, names(written, gone)...)
	}
	slices.Sort(got)
	if got, want := strings.Join(slices.Compact(got), ", "), "claimed, in a transaction, new, no purged, purged and back, settled"; got != want {
		t.Errorf("written: %s; want %s", got, want)
	}
	if again, err := s.Follow(t.Context(), retrysafe.Owner{8}); err != nil || again != source {
		t.Errorf("the store is called %v, and was called %v; %v", again, source, err)
	}
	if _, _, err := s.Written(t.Context(), mover, 2); !errors.Is(err, sqlitestore.ErrOvertaken) {
		t.Errorf("who was overtaken: %v", err)
	}
	if _, err := retire(t.Context(), s); !errors.Is(err, sqlitestore.ErrOvertaken) {
		t.Errorf("who was overtaken: %v", err)
	}
	must(t, s.Unfollow(t.Context(), retrysafe.Owner{8}))
	if n := one[int](t, s.DB(), `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'`); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// within does a step in a transaction of the caller's and ends it.
func within(t *testing.T, s *sqlitestore.Store, end func(*sql.Tx) error, do func(*sqlitestore.Tx) error) {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	must(t, errors.Join(do(s.Tx(tx)), end(tx)))
}

// What a killed move leaves behind ends by itself, and a move that lasts longer is
// refused: it has missed something.
func TestFollowEndsByItself(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	must(t, second(s.Follow(t.Context(), mover)))
	trigger := one[string](t, s.DB(), `SELECT sql FROM sqlite_schema WHERE name = 'retrysafe_written_INSERT'`)
	exec(t, s.DB(), `DROP TRIGGER retrysafe_written_INSERT`)
	exec(t, s.DB(), regexp.MustCompile(`(<|>=) \d+`).ReplaceAllString(trigger, "$1 1000"))
	for _, key := range []string{"a", "b", "c"} {
		put(t, s, key)
	}
	if n := one[int](t, s.DB(), `SELECT count(*) FROM retrysafe_written WHERE id IS NULL`); n != 1 {
		t.Errorf("%d rows say that something was missed", n)
	}
	if _, err := retire(t.Context(), s); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("Retire = %v", err)
	}
	if _, _, err := s.Written(t.Context(), mover, 10); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("Written = %v", err)
	}
	put(t, s, "d")
}

// What has begun before the cut and commits is copied; what would write after it
// cannot.
func TestRetireWaitsForTransactions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, other := open(t, path), open(t, path)
	must(t, second(s.Follow(t.Context(), mover)))
	late, err := other.DB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true}) // it has read, and has no lock
	must(t, err)
	defer late.Rollback()
	n := 0
	must(t, late.QueryRowContext(t.Context(), `SELECT count(*) FROM retrysafe_keys`).Scan(&n))

	early, err := other.DB().BeginTx(t.Context(), nil)
	must(t, err)
	must(t, second(other.Tx(early).Create(t.Context(), fresh("early"))))
	retired := make(chan error, 1)
	var rest []string
	go func() {
		var err error
		rest, err = retire(t.Context(), s)
		retired <- err
	}()
	must(t, early.Commit())
	if err := <-retired; err != nil || strings.Join(rest, ", ") != "early" {
		t.Errorf("left to copy: %q, %v", rest, err)
	}
	if _, err := other.Tx(late).Create(t.Context(), fresh("late")); err == nil {
		t.Error("a transaction that came too late has stored its answer")
	}
	if err := late.Commit(); err == nil {
		t.Error("a transaction that came too late has committed")
	}
}

// A store that is closed is opened by nobody but who moves it, who can look at what it
// holds.
func TestMovingOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	must(t, s.Fill(t.Context(), mover, retrysafe.Owner{9}, "elsewhere"))
	r := fresh("k")
	r.Revision, r.CreatedAt, r.UpdatedAt = 5, time.UnixMicro(3).UTC(), time.UnixMicro(5).UTC()
	must(t, s.Import(t.Context(), mover, []retrysafe.Record{r}, nil))
	if err := s.Import(t.Context(), retrysafe.Owner{8}, nil, nil); !errors.Is(err, sqlitestore.ErrOvertaken) {
		t.Errorf("who does not fill it: %v", err)
	}
	if _, err := sqlitestore.Open(t.Context(), path, nil); !errors.Is(err, sqlitestore.ErrFilling) {
		t.Errorf("Open = %v", err)
	}
	m, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{Moving: true})
	must(t, err)
	defer m.Close()
	if got, err := m.Load(t.Context(), r.Ref); err != nil || got.Revision != 5 {
		t.Errorf("Load = %+v, %v", got, err)
	}
	if _, err := m.Create(t.Context(), fresh("new")); !errors.Is(err, sqlitestore.ErrFilling) {
		t.Errorf("Create = %v", err)
	}
	must(t, m.Filled(t.Context(), mover))
	if err := m.Filled(t.Context(), mover); !errors.Is(err, sqlitestore.ErrOvertaken) {
		t.Errorf("Filled again = %v", err)
	}
	must(t, second(s.Load(t.Context(), r.Ref)))
	put(t, s, "new")
}
