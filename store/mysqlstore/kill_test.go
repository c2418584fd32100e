package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// Larger rounds, for a release.
var (
	kills     = flag.Int("mysql.kills", 3, "how often the server is killed under load")
	everyByte = flag.Bool("mysql.everybyte", false, "break connections at every byte")
	crowd     = flag.Int("mysql.crowd", 1500, "how many operations 256 clients send on neighbouring keys")
)

// addrOf is the host and port of a data source name.
func addrOf(t testing.TB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	must(t, err)
	return config.Addr
}

// loaded is what a till works under while servers die: a call waits only briefly for a
// dead server, and attempts that died with it lapse soon.
var loaded = retrysafe.Options{
	StoreTimeout: 500 * time.Millisecond, SettleTimeout: 100 * time.Millisecond,
	Policy: retrysafe.Policy{Lease: 500 * time.Millisecond},
}

// A journal is what clients know: the keys that they sent, and what they were told.
type journal struct {
	mu       sync.Mutex
	modes    map[string]string // key → mode
	answers  map[string]string // key → body
	verified map[string]bool
	acked    atomic.Int64
}

func newJournal() *journal {
	return &journal{modes: map[string]string{}, answers: map[string]string{}, verified: map[string]bool{}}
}

func (j *journal) sent(key, mode string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.modes[key] = mode
}

func (j *journal) told(key, body string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[key] = body
	j.acked.Add(1)
}

// load lets clients pay, each one key after another, until over is closed.
func (b *till) load(t *testing.T, j *journal, name string, over <-chan struct{}) *sync.WaitGroup {
	t.Helper()
	clients := new(sync.WaitGroup)
	for _, mode := range modes {
		for i := range 2 {
			clients.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-over:
						return
					default:
					}
					key := fmt.Sprintf("%s, %s %d, %d", name, mode, i, n)
					j.sent(key, mode)
					_, out, err := b.pay(t.Context(), mode, key)
					switch {
					case err == nil:
						j.told(key, string(out.Body))
					case errors.Is(err, retrysafe.ErrUnknown), errors.Is(err, retrysafe.ErrMismatch):
						t.Errorf("%s: a fresh key gets %v", key, err)
					default:
						time.Sleep(20 * time.Millisecond) // a client that is refused does not come back at once
					}
				}
			})
		}
	}
	return clients
}

// settled returns when the till has no answer left that is not stored.
func (b *till) settled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, mode := range modes {
		must(t, b.engines[mode].Drain(ctx))
	}
}

// verify holds the server to what clients were told, for every key that it was not held
// to before: an answer that was given is replayed, an operation that was not answered
// comes to an end, and none has a second effect.
func (j *journal) verify(t *testing.T, b *till, truth *sql.DB) {
	t.Helper()
	if again := one[int](t, truth, `SELECT COUNT(*) FROM (SELECT name FROM ledger GROUP BY name HAVING COUNT(*) > 1) AS again`); again != 0 {
		t.Errorf("%d keys have more than one effect", again)
	}
	for key, mode := range j.modes {
		if j.verified[key] {
			continue
		}
		j.verified[key] = true
		out := b.finish(t, mode, key)
		if body, told := j.answers[key]; told && (!out.Replayed || string(out.Body) != body) {
			t.Errorf("%s: a client was told %q, a retry gets %q, replayed: %v", key, body, out.Body, out.Replayed)
		}
		b.audit(t, truth, mode, key, out)
	}
}

// The server is killed with -9 under load, at any moment, and comes back. The store and
// its clients live on.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testservers.NewMariaDB(t, &testservers.MariaDBOptions{InMemory: *kills <= 3})
	s := open(t, server.DSN("test"), nil)
	all := newJournal()
	for round := range *kills {
		b := newTill(t, s, loaded)
		before, want := all.acked.Load(), int64(rand.N(60)+1)
		over := make(chan struct{})
		clients := b.load(t, all, fmt.Sprint("kill ", round), over)
		within(t, patience, "answers under load", func() bool { return all.acked.Load() >= before+want })
		time.Sleep(rand.N(5 * time.Millisecond)) // any moment, not that of an answer
		must(t, server.Kill())
		close(over)
		clients.Wait()
		must(t, server.Restart(t.Context()))
		b.settled(t)
		all.verify(t, b, connect(t, server.DSN("test")))
	}
	t.Logf("%d kills, %d keys, %d of them answered at once", *kills, len(all.modes), len(all.answers))
	if len(all.answers) == 0 {
		t.Error("nothing was answered under load")
	}
}

// 256 clients of two processes reserve, settle and replay neighbouring keys, in all modes,
// while others purge. The server has no gap locks to wait for, and no deadlock reaches a
// client.
func TestW39_NeighbouringKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	tills := []*till{newTill(t, open(t, dsn, nil), *unhurried), newTill(t, open(t, dsn, nil), *unhurried)}
	var next atomic.Int64
	var clients sync.WaitGroup
	for c := range 256 {
		clients.Go(func() {
			for i := next.Add(1); i <= int64(*crowd); i = next.Add(1) {
				mode := modes[i%3]
				if c >= 32 { // most clients are those of the plain mode: transactions need a connection each
					mode = keyed
				}
				key := fmt.Sprintf("%s %06d", mode, i/2) // two clients for each key
				_, _, err := tills[c%2].pay(t.Context(), mode, key)
				if err != nil && !errors.Is(err, retrysafe.ErrInFlight) {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	stop := make(chan struct{})
	var purges sync.WaitGroup
	purges.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := tills[0].Purge(t.Context(), 100); err != nil {
					t.Error(err)
				}
			}
		}
	})
	clients.Wait()
	close(stop)
	purges.Wait()
	truth := connect(t, dsn)
	if again := one[int](t, truth, `SELECT COUNT(*) FROM (SELECT name FROM ledger GROUP BY name HAVING COUNT(*) > 1) AS again`); again != 0 {
		t.Errorf("%d keys have more than one effect", again)
	}
}
