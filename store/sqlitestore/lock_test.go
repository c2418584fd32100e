package sqlitestore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// While another process has the write lock replays and refusals are answered, also
// beside steps that wait for it; and those are done when it is free.
func TestReplayWaitsForNoWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, other := patient(t, path), open(t, path) // as another process has it
	put(t, s, "old")
	flying, err := s.Create(t.Context(), fresh("in flight"))
	must(t, err)
	beside, err := s.Create(t.Context(), fresh("in flight, too")) // a step behind one that waits, on the same key, waits with it
	must(t, err)
	tx, err := other.DB().BeginTx(t.Context(), nil) // it takes the lock
	must(t, err)

	var writes sync.WaitGroup
	writes.Go(func() {
		if _, err := s.Swap(t.Context(), done(flying, "landed")); err != nil {
			t.Errorf("a Swap that waited: %v", err)
		}
	})
	for i := range 20 {
		writes.Go(func() {
			if _, err := s.Create(t.Context(), fresh(fmt.Sprint("new ", i))); err != nil {
				t.Errorf("a Create that waited: %v", err)
			}
		})
		if got, err := s.Create(t.Context(), another("old")); !errors.Is(err, retrysafe.ErrExists) || got.Result == nil {
			t.Errorf("a replay got %v, %v", got.State, err)
		}
		late := done(beside, "late")
		late.Expect.Revision--
		if _, err := s.Swap(t.Context(), late); !errors.Is(err, retrysafe.ErrConflict) {
			t.Errorf("a late Swap got %v", err)
		}
		if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("a Purge with nothing to do: %d, %v", n, err)
		}
	}
	must(t, tx.Rollback())
	writes.Wait()
	if n := one[int](t, s.DB(), `SELECT count(*) FROM retrysafe_keys`); n != 23 {
		t.Errorf("%d rows", n)
	}
}

// Replays write nothing, not even to the log.
func TestReplayWritesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	put(t, s, "k")
	witness, err := open(t, path).DB().Conn(t.Context())
	must(t, err)
	defer witness.Close()
	changes := func() (n int) {
		must(t, witness.QueryRowContext(t.Context(), `PRAGMA data_version`).Scan(&n))
		return n
	}
	before, log := changes(), stat(t, path+"-wal")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := s.Create(t.Context(), another("k")); !errors.Is(err, retrysafe.ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if changes() != before || stat(t, path+"-wal") != log {
		t.Error("something was written")
	}
	put(t, s, "another")
	if changes() == before {
		t.Error("a write is not seen; this test looks in the wrong place")
	}
}

// A store shares even a pool that is too small for it.
func TestSmallPools(t *testing.T) {
	t.Parallel()
	for conns := 1; conns <= 4; conns++ {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("sqlite", patientDSN(filepath.Join(t.TempDir(), "keys.db")))
			must(t, err)
			defer db.Close()
			db.SetMaxOpenConns(conns)
			s, err := sqlitestore.New(t.Context(), db, nil)
			must(t, err)
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					key := fmt.Sprint(i)
					put(t, s, key)
					if _, err := s.Load(t.Context(), keyed(key).Ref); err != nil {
						t.Error(err)
					}
					if _, err := s.List(t.Context(), retrysafe.Query{Due: true}); err != nil {
						t.Error(err)
					}
					if _, err := s.Purge(t.Context(), 10); err != nil {
						t.Error(err)
					}
					tx, err := db.BeginTx(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := s.Tx(tx).Create(t.Context(), fresh(key+" in a transaction")); err != nil {
						t.Error(err)
					}
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			must(t, s.Close())
			if n := one[int](t, db, `SELECT count(*) FROM retrysafe_keys`); n != 80 { // the pool is still the caller's
				t.Errorf("%d rows", n)
			}
			for range conns { // and each connection waits for the write lock as it was configured to
				c, err := db.Conn(t.Context())
				must(t, err)
				defer c.Close()
				var ms int
				if err := c.QueryRowContext(t.Context(), `PRAGMA busy_timeout`).Scan(&ms); ms != 60_000 || err != nil {
					t.Errorf("a connection waits %d ms for the write lock, want a minute: %v", ms, err)
				}
			}
		})
	}
}

// Answers may hold personal data: only the file's owner may read it.
func TestFilesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	put(t, open(t, path), "k")
	for _, beside := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + beside)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path+beside, info.Mode())
		}
	}
}

// A symbolic link to a file that is not there yet makes no difference.
func TestFileBehindADanglingLinkIsTheOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link, second := filepath.Join(dir, "data.db"), filepath.Join(dir, "link"), filepath.Join(dir, "second")
	must(t, os.Symlink("data.db", link))
	must(t, os.Symlink(link, second))
	put(t, open(t, second), "k")
	for _, beside := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(target + beside)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", target+beside, info.Mode())
		}
	}
}

// Answers that are too large to be written together are written all the same.
func TestLargeAnswersTravelTogether(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			r, err := s.Create(t.Context(), fresh(fmt.Sprint(i)))
			if err == nil {
				r, err = s.Swap(t.Context(), done(r, string(make([]byte, 400_000+i))))
			}
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := s.Load(t.Context(), r.Ref); err != nil || len(got.Result.Body) != 400_000+i {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// A step that no record can come from is refused by itself.
func TestRecordWithoutAStateIsRefusedAlone(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			r := fresh(fmt.Sprint(i))
			if i%4 == 0 {
				r.State = 0
			}
			if _, err := s.Create(t.Context(), r); (err == nil) != (r.State != 0) {
				t.Errorf("state %v: %v", r.State, err)
			}
		})
	}
	wg.Wait()
}

// A swap by a stale revision does not succeed: of many processes that take turns on
// few keys each step is applied once.
func TestProcessesContend(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	stores := []*sqlitestore.Store{patient(t, path), patient(t, path), patient(t, path)}
	const keys, each = 5, 20
	var wg sync.WaitGroup
	for k := range keys {
		must(t, second(stores[0].Create(t.Context(), fresh(fmt.Sprint(k)))))
		for _, s := range stores {
			wg.Go(func() {
				for n := 0; n < each; {
					r, err := s.Load(t.Context(), keyed(fmt.Sprint(k)).Ref)
					if err != nil {
						t.Error(err)
						return
					}
					w := r.Update()
					w.Reason += "x"
					w.Term = time.Minute
					_, err = s.Swap(t.Context(), w)
					switch {
					case err == nil:
						n++
					case !errors.Is(err, retrysafe.ErrConflict):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for range each {
				if _, err := stores[k%len(stores)].Purge(t.Context(), 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		r, err := stores[0].Load(t.Context(), keyed(fmt.Sprint(k)).Ref)
		if err != nil || len(r.Reason) != each*len(stores) {
			t.Errorf("%d steps were applied, want %d, %v", len(r.Reason), each*len(stores), err)
		}
	}
}

// A step that fails half-way leaves nothing behind.
func TestStepThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, other := open(t, path), open(t, path) // the other one has not reserved the key, and reads it first
	flying, err := s.Create(t.Context(), fresh("in flight"))
	must(t, err)
	exec(t, s.DB(), `CREATE TRIGGER inserts AFTER INSERT ON retrysafe_keys BEGIN SELECT RAISE(FAIL, 'not today'); END`)
	exec(t, s.DB(), `CREATE TRIGGER updates AFTER UPDATE ON retrysafe_keys BEGIN SELECT RAISE(FAIL, 'not today'); END`)
	if _, err := s.Create(t.Context(), fresh("new")); err == nil {
		t.Error("Create does not fail")
	}
	if _, err := s.Load(t.Context(), keyed("new").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
	for _, s := range []*sqlitestore.Store{s, other} {
		if _, err := s.Swap(t.Context(), done(flying, "landed")); err == nil {
			t.Error("Swap does not fail")
		}
	}
	if got, err := s.Load(t.Context(), flying.Ref); err != nil || got.Revision != flying.Revision {
		t.Errorf("Load = %+v, %v", got, err)
	}
	exec(t, s.DB(), `DROP TRIGGER inserts; DROP TRIGGER updates`)
	put(t, s, "new")

	// A constraint that is checked by COMMIT.
	exec(t, s.DB(), `CREATE TABLE parents (id INTEGER PRIMARY KEY); CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
	exec(t, s.DB(), `CREATE TRIGGER orphans AFTER INSERT ON retrysafe_keys BEGIN INSERT INTO children VALUES (1); END`)
	if _, err := s.Create(t.Context(), fresh("not committed")); err == nil || !strings.Contains(err.Error(), "commit") {
		t.Errorf("Create that cannot commit = %v", err)
	}
	if _, err := s.Load(t.Context(), keyed("not committed").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
	exec(t, s.DB(), `DROP TRIGGER orphans`)
	put(t, s, "not committed")
	must(t, second(s.Swap(t.Context(), done(flying, "landed"))))
}

// A purge gives its connection back to the pool, also if it does not get the write lock.
func TestPurgeKeepsNoConnection(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	other := patient(t, path)
	db, err := sql.Open("sqlite", waitingDSN(path, time.Millisecond))
	must(t, err)
	defer db.Close()
	s, err := sqlitestore.New(t.Context(), db, nil)
	must(t, err)
	defer s.Close()
	due := done(fresh("k").Record, "an answer")
	due.Term = -time.Second
	must(t, second(s.Create(t.Context(), due)))
	before := db.Stats().InUse
	tx, err := other.DB().BeginTx(t.Context(), nil) // it takes the lock
	must(t, err)
	for range 3 {
		if n, err := s.Purge(t.Context(), 10); n != 0 || err == nil {
			t.Errorf("Purge = %d, %v, while another process has the lock", n, err)
		}
	}
	if after := db.Stats().InUse; after != before {
		t.Errorf("%d connections are in use, and before the purges %d were", after, before)
	}
	must(t, tx.Rollback())
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("Purge = %d, %v", n, err)
	}
	if after := db.Stats().InUse; after != before {
		t.Errorf("after a purge that succeeds %d connections are in use, and before %d were", after, before)
	}
}

// The fence is the highest revision of a purge, in whatever order the keys are due.
func TestFenceIsTheHighestRevisionOfAPurge(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	var last retrysafe.Record
	for i := range 3 { // the last one has the highest revision, and is due first
		w := done(fresh(fmt.Sprint(i)).Record, "an answer")
		w.Term = -time.Duration(1+i) * time.Hour
		r, err := s.Create(t.Context(), w)
		must(t, err)
		last = r
	}
	if n, err := s.Purge(t.Context(), 10); n != 3 || err != nil {
		t.Fatalf("Purge = %d, %v", n, err)
	}
	if fence := one[int64](t, s.DB(), `SELECT revision FROM retrysafe_fence`); fence != last.Revision {
		t.Errorf("the fence is at %d, and %d was purged", fence, last.Revision)
	}
	// A later purge of lower revisions does not lower it.
	w := done(fresh("lower").Record, "an answer")
	w.Term = -time.Hour
	must(t, second(s.Create(t.Context(), w)))
	ahead := time.Now().Add(time.Hour).UnixMicro()
	exec(t, s.DB(), `UPDATE retrysafe_fence SET revision = ?`, ahead)
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("Purge = %d, %v", n, err)
	}
	if fence := one[int64](t, s.DB(), `SELECT revision FROM retrysafe_fence`); fence != ahead {
		t.Errorf("the fence is at %d, and was at %d", fence, ahead)
	}
}

// A clock that was set back repeats no revision: a key starts above all that were
// ever purged.
func TestRevisionsStartAboveThePurged(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	r := done(fresh("k").Record, "an answer")
	r.Term = time.Microsecond
	first, err := s.Create(t.Context(), r)
	must(t, err)
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("Purge = %d, %v", n, err)
	}
	if fence := one[int64](t, s.DB(), `SELECT revision FROM retrysafe_fence`); fence != first.Revision {
		t.Errorf("the fence is at %d, and %d was purged", fence, first.Revision)
	}
	ahead := time.Now().Add(time.Hour).UnixMicro() // as if the clock had been there
	exec(t, s.DB(), `UPDATE retrysafe_fence SET revision = ?`, ahead)
	again, err := s.Create(t.Context(), fresh("k"))
	if err != nil || again.Revision <= ahead {
		t.Errorf("revision %d, %v; want it above %d", again.Revision, err, ahead)
	}
	if after, err := s.Swap(t.Context(), done(again, "an answer")); err != nil || after.Revision <= again.Revision {
		t.Errorf("revision %d, %v; want it above %d", after.Revision, err, again.Revision)
	}
}
