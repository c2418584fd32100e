package pgstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// Steps wait for a table that a migration has locked, and none of them fails.
func TestStepsWaitForALockedTable(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, locker := open(t, url, nil), connect(t, url)
	s.SetLockPatience(time.Minute)
	var reserved []retrysafe.Record
	for i := range 3 {
		r, err := s.Create(t.Context(), fresh(fmt.Sprint("reserved", i)))
		must(t, err)
		reserved = append(reserved, r)
	}
	steps := []func() (retrysafe.Record, error){
		func() (retrysafe.Record, error) { return s.Create(t.Context(), fresh("new")) },
		func() (retrysafe.Record, error) { return s.Create(t.Context(), fresh("newer")) },
		func() (retrysafe.Record, error) { return s.Swap(t.Context(), done(reserved[0], "done")) },
		func() (retrysafe.Record, error) { return s.Swap(t.Context(), done(reserved[1], "done")) },
		func() (retrysafe.Record, error) { return s.Load(t.Context(), reserved[2].Ref) },
	}
	exec(t, locker, `BEGIN; LOCK TABLE retrysafe_keys IN ACCESS EXCLUSIVE MODE`)
	var wg sync.WaitGroup
	var ended atomic.Int32
	for _, step := range steps {
		wg.Go(func() {
			defer ended.Add(1)
			if _, err := step(); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(400 * time.Millisecond) // 20 times as long as one wait
	if n := ended.Load(); n > 0 {
		t.Errorf("%d steps ended beside the lock", n)
	}
	exec(t, locker, `COMMIT`)
	wg.Wait()
}

// A lock that is not granted for long is an error. Where it is the server's refusal, nothing
// was stored.
func TestALockedTableIsGivenUp(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, locker := open(t, url, nil), connect(t, url)
	exec(t, locker, `BEGIN; LOCK TABLE retrysafe_keys IN ACCESS EXCLUSIVE MODE`)
	var refused *pgconn.PgError
	_, err := s.Create(t.Context(), fresh("k"))
	if err == nil {
		t.Error("created beside a lock of the table")
	}
	exec(t, locker, `COMMIT`)
	if !errors.As(err, &refused) {
		return
	}
	if _, err := s.Load(t.Context(), fresh("k").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("%v, want that nothing was stored", err)
	}
}
