package mysqlstore_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// The clock was set back by a day. A worker that is dead keeps its shards for an hour at
// most, and one that is alive renews its own.
func TestClockSetBackLeavesNoShardHeld(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience})
	lease := func(worker byte, term time.Duration) outbox.Lease {
		t.Helper()
		held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{worker}, term)
		must(t, err)
		return held
	}
	lease(1, time.Minute)
	for _, table := range []string{"retrysafe_shards", "retrysafe_workers"} {
		exec(t, s.DB(), `UPDATE `+table+` SET until = until + 86400000000`)
	}
	if held := lease(2, time.Minute); len(held.Shards) != 0 || held.Workers != 2 {
		t.Errorf("beside a worker whose term has not ended another one holds %d shards, of %d workers", len(held.Shards), held.Workers)
	}
	for _, table := range []string{"retrysafe_shards", "retrysafe_workers"} {
		if last := time.UnixMicro(one[int64](t, s.DB(), `SELECT MAX(until) FROM `+table)); time.Until(last) > time.Hour {
			t.Errorf("%s: a term ends at %v", table, last)
		}
	}
	if held := lease(1, 2*time.Hour); len(held.Shards) != outbox.Shards/2 {
		t.Errorf("a worker that is alive holds %d shards", len(held.Shards))
	}
	if held := lease(2, 2*time.Hour); len(held.Shards) != outbox.Shards/2 {
		t.Errorf("the other worker holds %d shards", len(held.Shards))
	}
	if until := time.UnixMicro(one[int64](t, s.DB(), `SELECT MIN(until) FROM retrysafe_shards`)); time.Until(until) < time.Hour+30*time.Minute {
		t.Errorf("a term of two hours ends at %v", until)
	}
	lease(1, 0)
	lease(2, time.Nanosecond) // its term has ended when it is counted
}
