package pgstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
)

// Random workers lease, renew, give back and vanish, at the same time and over
// several handles. No shard ever has two holders, and its epochs only grow; while a
// worker may hold a shard, no other worker reads or acknowledges under another epoch.
func TestLeasesOfRandomWorkers(t *testing.T) {
	t.Parallel()
	const workers, steps = 12, 60
	url := testservers.Shared(t)
	type tenure struct {
		worker int
		until  time.Time // by our clock, and earlier than the database's word
	}
	var mu sync.Mutex
	held := map[outbox.Shard]tenure{}
	latest := map[int]int64{}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			box := open(t, url, nil).Outbox()
			worker := retrysafe.Owner{byte(i + 1)}
			for range steps {
				term := time.Duration(rand.IntN(3)) * 30 * time.Millisecond
				began := time.Now()
				got, err := inTurn(func() (outbox.Lease, error) { return box.Lease(t.Context(), worker, term) })
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				now := time.Now()
				for _, s := range got.Shards {
					if was, ok := held[s]; ok && was.worker != i {
						t.Errorf("shard %d has epoch %d twice, of workers %d and %d", s.N, s.Epoch, was.worker, i)
					}
					if s.Epoch < latest[s.N] && began.Add(term).After(now) && held[outbox.Shard{N: s.N, Epoch: latest[s.N]}].until.After(now) {
						t.Errorf("shard %d is held under the epochs %d and %d", s.N, s.Epoch, latest[s.N])
					}
					held[s] = tenure{i, began.Add(term)}
					latest[s.N] = max(latest[s.N], s.Epoch)
				}
				if share := (outbox.Shards + got.Workers - 1) / max(got.Workers, 1); len(got.Shards) > share {
					t.Errorf("one of %d workers holds %d shards", got.Workers, len(got.Shards))
				}
				if term == 0 && len(got.Shards) > 0 {
					t.Error("a worker that gives everything back holds something")
				}
				mu.Unlock()
				if rand.IntN(4) == 0 {
					time.Sleep(rand.N(100 * time.Millisecond)) // beyond its term
				}
			}
		})
	}
	wg.Wait()
	if len(latest) != outbox.Shards {
		t.Error(fmt.Sprint("only ", len(latest), " shards were ever held"))
	}
}

// inTurn asks for a lease as often as its turn has not come: the store waits for some
// seconds only, and a worker asks again.
func inTurn(lease func() (outbox.Lease, error)) (outbox.Lease, error) {
	for {
		got, err := lease()
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "55P03" { // lock_not_available
			return got, err
		}
	}
}

// A takeover waits for an ending under way, and an ending that comes behind it is
// refused.
func TestTakeoverAndEndingTakeTurns(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	box := s.Outbox()
	a, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	must(t, s.Tx(tx).Enqueue(t.Context(), outbox.Message{Topic: "t", Group: "g"}))
	must(t, tx.Commit(t.Context()))
	list, err := box.Due(t.Context(), a.Shards, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("due are %v, %v", list, err)
	}
	must(t, second(box.Lease(t.Context(), retrysafe.Owner{1}, 0)))

	// An ending under way holds the keys of its shards.
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM retrysafe_shards WHERE n = $1 FOR KEY SHARE`, list[0].Shard.N)
	taken := make(chan outbox.Lease, 1)
	go func() {
		got, err := inTurn(func() (outbox.Lease, error) { return box.Lease(t.Context(), retrysafe.Owner{2}, time.Hour) })
		if err != nil {
			t.Error(err)
		}
		taken <- got
	}()
	watch := connect(t, url)
	eventually(t, "the takeover waits", func() bool {
		return one[int](t, watch, `SELECT count(*) FROM pg_locks WHERE NOT granted`) > 0
	})
	select {
	case <-taken:
		t.Error("a shard was taken over while an ending was under way")
	default:
	}
	exec(t, conn, `COMMIT`)
	if got := <-taken; len(got.Shards) != outbox.Shards {
		t.Errorf("%d shards were taken over", len(got.Shards))
	}
	ended, err := box.Ack(t.Context(), []outbox.Ack{{ID: list[0].ID, Shard: list[0].Shard, Kind: outbox.AckDelivered}})
	must(t, err)
	if ended[0].Err == nil {
		t.Error("an ending under an old epoch is taken")
	}
	// A renewal does not wait for a transaction with a key-share lock on the shards.
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM retrysafe_shards FOR KEY SHARE`)
	must(t, second(box.Lease(t.Context(), retrysafe.Owner{2}, time.Hour)))
	exec(t, conn, `ROLLBACK`)
}
