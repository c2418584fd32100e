package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A replay writes nothing, not even to the log, takes no number of a transaction
// and locks no row: it can be had from a server that is busy, and costs it
// nothing.
func TestReplayWritesNothing(t *testing.T) {
	t.Parallel()
	// A server of its own, on which nothing happens by itself: at level replica it
	// would log now and then which transactions run.
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true, Settings: map[string]string{
		"autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0",
	}})
	b := newBank(t, pg.URL("postgres"), retrysafe.Policy{})
	const keys, replays = 50, 1000
	runs := 0
	do := func(i int) (retrysafe.Outcome, error) {
		return b.Do(t.Context(), call(fmt.Sprint(i%keys)), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			return retrysafe.Result{Status: 201, Body: make([]byte, 500)}, nil
		})
	}
	// The first round runs, the second is the first to read pages that were
	// changed: a reader may tidy those up, and that is logged.
	for i := range 2 * keys {
		must(t, second(do(i)))
	}
	type trace struct {
		log, lastXact string
		locks         int64
		rows          string
	}
	look := func() (s trace) {
		s.log = one[string](t, b.conn, `SELECT pg_current_wal_insert_lsn()::text`)
		s.lastXact = one[string](t, b.conn, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`)
		s.rows = one[string](t, b.conn, `SELECT md5(string_agg(ctid::text || xmin || xmax || k::text, ',' ORDER BY id)) FROM retrysafe_keys k`)
		s.locks = one[int64](t, b.conn, `SELECT count(*) FROM retrysafe_keys WHERE xmax <> 0`)
		return s
	}
	before := look()
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range replays / 8 {
				if out, err := do(c + i); err != nil || !out.Replayed {
					t.Errorf("%+v, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	if after := look(); after != before || runs != keys {
		t.Errorf("%d replays of %d keys left traces:\n%+v\n%+v", replays, runs, before, after)
	}
	if before.locks != 0 {
		t.Errorf("%d rows have been locked", before.locks)
	}
}
