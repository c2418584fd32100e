package mysqlstore_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// A revision never falls, also where it is ahead of the clock: an old one would fit again.
func TestRevisionAheadOfTheClockGoesOn(t *testing.T) {
	t.Parallel()
	for _, batches := range []bool{false, true} {
		s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience})
		if batches {
			s.SendLoneStepsAsBatches()
		}
		must(t, second(s.Create(t.Context(), fresh("k"))))
		exec(t, s.DB(), `UPDATE retrysafe_keys SET revision = revision + 3600000000`)
		r, err := s.Load(t.Context(), refOf("k"))
		must(t, err)
		got, err := s.Swap(t.Context(), done(r, "paid"))
		must(t, err)
		if stored, err := s.Load(t.Context(), refOf("k")); err != nil || stored.Revision <= r.Revision || stored.Revision != got.Revision {
			t.Errorf("as batches %t: after revision %d comes %d, and the store has %d, %v", batches, r.Revision, got.Revision, stored.Revision, err)
		}
	}
}

// A purge compares again what it has found, behind the lock: a record whose time was
// prolonged meanwhile, or that has another state by then, is kept.
func TestPurgeKeepsWhatHasChangedSinceItLooked(t *testing.T) {
	t.Parallel()
	for _, change := range []string{`deadline = deadline + 7200000000`, `state = 1`} {
		dsn := testservers.SharedMariaDB(t)
		proxy, err := netfault.New(addrOf(t, dsn))
		must(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		s := open(t, through(t, dsn, proxy.Addr()), &mysqlstore.Options{Timeout: patience})
		truth := connect(t, dsn)
		r, err := s.Create(t.Context(), fresh("k"))
		must(t, err)
		must(t, second(s.Swap(t.Context(), done(r, "paid"))))
		exec(t, truth, `UPDATE retrysafe_keys SET deadline = deadline - 3660000000 WHERE state = ?`, int64(retrysafe.StateCompleted))
		var once sync.Once
		proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
			if c.Dir == netfault.ToServer && bytes.Contains(c.Data, []byte("SKIP LOCKED")) {
				once.Do(func() {
					if _, err := truth.ExecContext(t.Context(), `UPDATE retrysafe_keys SET `+change); err != nil {
						t.Error(err)
					}
				})
			}
			return netfault.Verdict{}
		})
		n, err := s.Purge(t.Context(), 10)
		must(t, err)
		once.Do(func() { t.Error("the purge has not found the record") })
		if left := one[int](t, truth, `SELECT COUNT(*) FROM retrysafe_keys`); n != 0 || left != 1 {
			t.Errorf("%s: %d records are purged, and %d are left", change, n, left)
		}
	}
}

// What a purge notes is the highest revision that it deletes, wherever its row comes among the
// others: a key that is created again starts above it, whatever the clock says.
func TestPurgeNotesTheHighestRevision(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	for _, key := range []string{"a", "b", "c", "d"} {
		r, err := s.Create(t.Context(), fresh(key))
		must(t, err)
		must(t, second(s.Swap(t.Context(), done(r, "paid"))))
	}
	exec(t, s.DB(), `UPDATE retrysafe_keys SET deadline = 0`)
	exec(t, s.DB(), `UPDATE retrysafe_keys SET revision = revision + 3600000000 ORDER BY id LIMIT 1`) // the first that is read
	highest := one[int64](t, s.DB(), `SELECT MAX(revision) FROM retrysafe_keys`)
	if n, err := s.Purge(t.Context(), 10); err != nil || n != 4 {
		t.Fatalf("%d records are purged, %v", n, err)
	}
	if r, err := s.Create(t.Context(), fresh("d")); err != nil || r.Revision <= highest {
		t.Errorf("a key that is created again has revision %d, and one that was purged had %d; %v", r.Revision, highest, err)
	}
}
