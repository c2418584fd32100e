// Package leasetest tests the leases of outbox shards in SQL stores whose clock is not
// steady, behind the back of the store: no rule of store/storetest can do that.
package leasetest

import (
	"database/sql"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// ClockSetBack tests a store whose clock was set back by a day, and whose tables have
// microseconds since 1970 in their column until. A worker that is dead keeps its shards for
// an hour at most, and one that is alive renews its own.
func ClockSetBack(t *testing.T, s outbox.Store, db *sql.DB) {
	t.Helper()
	lease := func(worker byte, term time.Duration) outbox.Lease {
		t.Helper()
		held, err := s.Lease(t.Context(), retrysafe.Owner{worker}, term)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	until := func(query string) time.Time {
		t.Helper()
		var micros int64
		if err := db.QueryRowContext(t.Context(), query).Scan(&micros); err != nil {
			t.Fatal(err)
		}
		return time.UnixMicro(micros)
	}
	tables := []string{"retrysafe_shards", "retrysafe_workers"}

	lease(1, time.Minute)
	for _, table := range tables {
		if _, err := db.ExecContext(t.Context(), `UPDATE `+table+` SET until = until + 86400000000`); err != nil {
			t.Fatal(err)
		}
	}
	if held := lease(2, time.Minute); len(held.Shards) != 0 || held.Workers != 2 {
		t.Errorf("beside a worker whose term has not ended another one holds %d shards, of %d workers", len(held.Shards), held.Workers)
	}
	for _, table := range tables {
		if last := until(`SELECT max(until) FROM ` + table); time.Until(last) > time.Hour {
			t.Errorf("%s: a term ends at %v", table, last)
		}
	}
	if held := lease(1, 2*time.Hour); len(held.Shards) != outbox.Shards/2 {
		t.Errorf("a worker that is alive holds %d shards", len(held.Shards))
	}
	if held := lease(2, 2*time.Hour); len(held.Shards) != outbox.Shards/2 {
		t.Errorf("the other worker holds %d shards", len(held.Shards))
	}
	if first := until(`SELECT min(until) FROM retrysafe_shards`); time.Until(first) < time.Hour+30*time.Minute {
		t.Errorf("a term of two hours ends at %v", first)
	}
	lease(1, 0)
	lease(2, time.Nanosecond) // its term has ended when it is counted
}
