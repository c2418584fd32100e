package pgstore_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
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
func retire(ctx context.Context, s *pgstore.Store) (rest []string, err error) {
	err = s.Mover().Retire(ctx, mover, "elsewhere", func(_ context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
		rest = append(rest, names(written, gone)...)
		return nil
	})
	return rest, err
}

// Every write is followed, in whatever way it is made. A read is not.
func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "Payments' \"$write$\""} {
		url := testservers.Shared(t)
		s := open(t, url, &pgstore.Options{Schema: schema})
		old := map[string]retrysafe.Record{}
		for _, key := range []string{"read", "settled", "claimed", "in a transaction", "purged", "purged and back"} {
			r, err := s.Create(t.Context(), fresh(key))
			must(t, err)
			old[key] = r
		}
		source, err := s.Mover().Follow(t.Context(), mover)
		must(t, err)
		_, err = s.Create(t.Context(), fresh("read"))
		if !errors.Is(err, retrysafe.ErrExists) {
			t.Fatal(err)
		}
		must(t, second(s.Create(t.Context(), fresh("new"))))
		must(t, second(s.Swap(t.Context(), done(old["settled"], "x"))))
		claimed := old["claimed"]
		claim := claimed.Update()
		claim.Overwrite, claim.Owner = true, retrysafe.Owner{1}
		must(t, second(s.Swap(t.Context(), claim)))
		tx, err := s.Pool().Begin(t.Context())
		must(t, err)
		must(t, second(s.Tx(tx).Swap(t.Context(), done(old["in a transaction"], "x"))))
		must(t, tx.Commit(t.Context()))
		tx, err = s.Pool().Begin(t.Context())
		must(t, err)
		must(t, second(s.Tx(tx).Create(t.Context(), fresh("rolled back"))))
		must(t, tx.Rollback(t.Context()))
		for _, key := range []string{"purged", "purged and back"} {
			gone := done(old[key], "x")
			gone.Term, gone.Retain = -time.Second, 0
			must(t, second(s.Swap(t.Context(), gone)))
		}
		eventually(t, "a purge takes both", func() bool {
			must(t, second(s.Purge(t.Context(), 10)))
			_, first := s.Load(t.Context(), old["purged"].Ref)
			_, second := s.Load(t.Context(), old["purged and back"].Ref)
			return errors.Is(first, retrysafe.ErrNotFound) && errors.Is(second, retrysafe.ErrNotFound)
		})
		must(t, second(s.Create(t.Context(), fresh("purged and back"))))

		var got []string
		for {
			written, gone, err := s.Mover().Written(t.Context(), mover, 1)
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
		if again, err := s.Mover().Follow(t.Context(), retrysafe.Owner{8}); err != nil || again != source {
			t.Errorf("the store is called %v, and was called %v; %v", again, source, err)
		}
		if _, _, err := s.Mover().Written(t.Context(), mover, 2); !errors.Is(err, storemove.ErrOvertaken) {
			t.Errorf("the run that was overtaken: %v", err)
		}
		if _, err := retire(t.Context(), s); !errors.Is(err, storemove.ErrOvertaken) {
			t.Errorf("the run that was overtaken: %v", err)
		}
		must(t, s.Mover().Unfollow(t.Context(), retrysafe.Owner{8}))
		if n := one[int](t, connect(t, url), `SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'retrysafe%'`); n != 0 {
			t.Errorf("%d triggers are left", n)
		}
	}
}

// What a killed move leaves behind ends by itself, and a move that lasts longer is
// refused: it has missed something.
func TestFollowEndsByItself(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	must(t, second(s.Mover().Follow(t.Context(), mover)))
	function := one[string](t, conn, `SELECT pg_get_functiondef('retrysafe_write'::regproc)`)
	exec(t, conn, regexp.MustCompile(`< \d+`).ReplaceAllString(function, "< 1000"))
	for _, key := range []string{"a", "b", "c"} {
		must(t, second(s.Create(t.Context(), fresh(key))))
	}
	if n := one[int](t, conn, `SELECT count(*) FROM retrysafe_written`); n != 1 {
		t.Errorf("the log has %d rows", n)
	}
	if _, err := retire(t.Context(), s); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("Retire = %v", err)
	}
	if _, _, err := s.Mover().Written(t.Context(), mover, 10); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("Written = %v", err)
	}
	works(t, s)
}

// What has begun before the cut and commits is copied; what would commit after it
// cannot.
func TestRetireWaitsForTransactions(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	must(t, second(b.store.Mover().Follow(t.Context(), mover)))
	late, err := b.store.Pool().Begin(t.Context())
	must(t, err)
	must(t, second(late.Exec(t.Context(), book, "late", "late")))

	begun, end := make(chan struct{}), make(chan struct{})
	booked := make(chan error, 1)
	go func() {
		_, err := b.doTx(t.Context(), "early", func(context.Context, pgx.Tx) error {
			close(begun)
			<-end
			return nil
		})
		booked <- err
	}()
	<-begun
	type outcome struct {
		rest []string
		err  error
	}
	retired := make(chan outcome, 1)
	go func() {
		rest, err := retire(t.Context(), open(t, url, nil))
		retired <- outcome{rest, err}
	}()
	eventually(t, "the cut waits for the transaction", func() bool {
		return one[bool](t, b.conn, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')`)
	})
	close(end)
	if err := <-booked; err != nil {
		t.Errorf("a transaction that was there before: %v", err)
	}
	if got := <-retired; got.err != nil || strings.Join(got.rest, ", ") != "early" {
		t.Errorf("left to copy: %q, %v", got.rest, got.err)
	}
	if _, err := b.store.Tx(late).Create(t.Context(), fresh("late")); err == nil {
		t.Error("a transaction that came too late has stored its answer")
	}
	if err := late.Commit(t.Context()); err == nil {
		t.Error("a transaction that came too late has committed")
	}
	if got := b.booked(t, "early"); got != "doTx" {
		t.Errorf("booked %q", got)
	}
	if got := b.booked(t, "late"); got != "" {
		t.Errorf("booked %q", got)
	}
}

// A store is filled by the run that began last, from one source only, and serves no
// requests meanwhile.
func TestFillIsOneRuns(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, nil)
	first, second := retrysafe.Owner{1}, retrysafe.Owner{2}
	if err := s.Mover().Import(t.Context(), first, nil, nil); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Import before Fill = %v", err)
	}
	must(t, s.Mover().Fill(t.Context(), first, mover, "elsewhere"))
	must(t, s.Mover().Import(t.Context(), first, []retrysafe.Record{fresh("stale").Record}, nil))
	if err := s.Mover().Fill(t.Context(), second, retrysafe.Owner{9}, "another place"); !errors.Is(err, pgstore.ErrFilling) {
		t.Errorf("another source: %v", err)
	}
	must(t, s.Mover().Fill(t.Context(), second, mover, "elsewhere"))
	for name, err := range map[string]error{
		"Import": s.Mover().Import(t.Context(), first, nil, nil), "Filled": s.Mover().Filled(t.Context(), first), "Unfill": s.Mover().Unfill(t.Context(), first),
	} {
		if !errors.Is(err, storemove.ErrOvertaken) {
			t.Errorf("%s of the run before = %v", name, err)
		}
	}
	must(t, s.Mover().Import(t.Context(), second, []retrysafe.Record{fresh("new").Record, fresh("gone").Record}, nil))
	must(t, s.Mover().Import(t.Context(), second, nil, []retrysafe.Ref{fresh("gone").Ref}))
	if _, err := s.Create(t.Context(), fresh("too early")); !errors.Is(err, pgstore.ErrFilling) {
		t.Errorf("Create = %v", err)
	}
	must(t, s.Mover().Filled(t.Context(), second))
	if err := s.Mover().Filled(t.Context(), second); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Filled again = %v", err)
	}
	list, err := s.List(t.Context(), retrysafe.Query{})
	if err != nil || strings.Join(names(list, nil), ", ") != "new" {
		t.Errorf("there is %q, %v", names(list, nil), err)
	}
	works(t, s)
}

// A role that may use the keys and nothing else is followed, and is told where they
// went. It cannot move them.
func TestRolesInAMove(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	role := newRole(t, conn)
	exec(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON retrysafe_keys, retrysafe_outbox, retrysafe_dead, retrysafe_shards, retrysafe_workers TO `+role+`; GRANT SELECT ON retrysafe_schema TO `+role)
	clerk := open(t, as(t, url, role), nil)
	for name, err := range map[string]error{"Follow": second(clerk.Mover().Follow(t.Context(), mover)), "Fill": clerk.Mover().Fill(t.Context(), mover, mover, "elsewhere")} {
		if err == nil || !strings.Contains(err.Error(), "run it as the owner of the tables") {
			t.Errorf("%s = %v", name, err)
		}
	}
	must(t, second(s.Mover().Follow(t.Context(), mover)))
	must(t, second(clerk.Create(t.Context(), fresh("of a clerk"))))
	rest, err := retire(t.Context(), s)
	if err != nil || strings.Join(rest, ", ") != "of a clerk" {
		t.Errorf("left to copy: %q, %v", rest, err)
	}
	if _, err := clerk.Create(t.Context(), fresh("too late")); !errors.Is(err, pgstore.ErrMoved) {
		t.Errorf("Create = %v", err)
	}
	if _, err := pgstore.Open(t.Context(), as(t, url, role), nil); !errors.Is(err, pgstore.ErrMoved) {
		t.Errorf("Open = %v", err)
	}
	again := open(t, url, &pgstore.Options{Moving: true})
	if by, err := again.Mover().Retired(t.Context()); err != nil || by != mover {
		t.Errorf("Retired = %v, %v", by, err)
	}
}
