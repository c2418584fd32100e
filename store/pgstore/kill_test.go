package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// kills is how often the server is killed under load.
const kills = 20

// loaded is what a till works under while servers die: a call waits only briefly for a
// dead server, and attempts that died with it lapse soon.
var loaded = retrysafe.Options{
	StoreTimeout: 500 * time.Millisecond, SettleTimeout: 100 * time.Millisecond,
	Policy: retrysafe.Policy{Lease: 500 * time.Millisecond},
}

// A journal is what clients know: the keys that they sent, and what they were
// told.
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

// clients is how many run in each mode.
const clients = 2

// A load is clients that pay, each one key after another, until they are stopped.
type load struct {
	*journal
	before  int64
	clients sync.WaitGroup
	over    chan struct{}
}

func (b *till) load(t *testing.T, j *journal, name string) *load {
	t.Helper()
	l := &load{journal: j, before: j.acked.Load(), over: make(chan struct{})}
	for _, mode := range modes {
		for i := range clients {
			l.clients.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-l.over:
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
	return l
}

// await returns when n answers more were given.
func (l *load) await(t *testing.T, n int) {
	t.Helper()
	within(t, patience, "answers under load", func() bool { return l.acked.Load() >= l.before+int64(n) })
}

func (l *load) stop() {
	close(l.over)
	l.clients.Wait()
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

// verify holds the server to what clients were told, for every key that it was not
// held to before: an answer that was given is replayed, an operation that was not
// answered comes to an end, and none has a second effect.
func (j *journal) verify(t *testing.T, b *till, truth *pgx.Conn) {
	t.Helper()
	if again := one[int](t, truth, `SELECT count(*) FROM (SELECT FROM ledger GROUP BY key HAVING count(*) > 1) again`); again != 0 {
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

func (j *journal) report(t *testing.T) {
	t.Helper()
	t.Logf("%d keys, %d of them answered at once", len(j.modes), len(j.answers))
	if len(j.answers) == 0 {
		t.Error("nothing was answered under load")
	}
}

// The server is killed with -9 under load, at any moment, and comes back. The store
// and its clients live on.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	killUnderLoad(t, testservers.NewPostgres(t, nil), kills)
}

func killUnderLoad(t *testing.T, pg *testservers.Postgres, kills int) {
	t.Helper()
	killUnderLoadOf(t, pg, open(t, pg.URL("postgres"), nil), kills)
}

func killUnderLoadOf(t *testing.T, pg *testservers.Postgres, s *pgstore.Store, kills int) {
	t.Helper()
	all := newJournal()
	for round := range kills {
		opts := loaded
		opts.Policy.AsyncReserve = round%2 == 1 // a reservation may be lost with the server, an answer never
		b := newTill(t, s, opts)
		load := b.load(t, all, fmt.Sprint("kill ", round))
		load.await(t, rand.N(60)+1)
		time.Sleep(rand.N(5 * time.Millisecond)) // any moment, not that of an answer
		must(t, pg.Kill())
		load.stop()
		must(t, pg.Restart(t.Context()))
		b.settled(t)
		all.verify(t, b, connect(t, pg.URL("postgres")))
	}
	all.report(t)
}

// The server dies while operations run. They have had their effect, and their
// answers are not shown before they are durable; when the server is back the engine
// stores them in the background.
func TestW42_AnswerWaitsForAServerThatDied(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, inMemory)
	b := newTill(t, open(t, pg.URL("postgres"), nil), retrysafe.Options{StoreTimeout: patience, SettleTimeout: 300 * time.Millisecond, Policy: retrysafe.Policy{Lease: patience}})
	b.within = func() { must(t, pg.Kill()) }
	_, out, err := b.pay(t.Context(), keyed, "key")
	if !errors.Is(err, retrysafe.ErrUnsettled) {
		t.Errorf("without a server the answer is %q, %v; want ErrUnsettled", out.Body, err)
	}
	b.within = func() { t.Error("it runs again") }
	must(t, pg.Restart(t.Context()))
	b.settled(t)
	if out := b.finish(t, keyed, "key"); !out.Replayed {
		t.Error("the answer was not stored by itself")
	}
}

// A server that stands still: calls are refused in time, nothing runs, and when it
// goes on all is as before.
func TestW14W16_ServerThatStandsStill(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, inMemory)
	b := newTill(t, open(t, pg.URL("postgres"), &pgstore.Options{Timeout: 500 * time.Millisecond}),
		retrysafe.Options{StoreTimeout: 300 * time.Millisecond, SettleTimeout: 300 * time.Millisecond, Policy: retrysafe.Policy{Lease: patience}})
	truth := connect(t, pg.URL("postgres"))
	for _, mode := range modes {
		b.finish(t, mode, "before "+mode)
	}
	must(t, pg.Pause())
	b.within = func() { t.Error("an operation runs without a reservation") }
	var calls sync.WaitGroup
	for i := range 8 {
		for _, mode := range modes {
			calls.Go(func() {
				_, _, err := b.pay(t.Context(), mode, fmt.Sprintf("%s %d", mode, i%2))
				var refused *retrysafe.RefusedError
				if !errors.Is(err, retrysafe.ErrUnavailable) || !errors.As(err, &refused) || refused.RetryAfter <= 0 {
					t.Errorf("%s: a server that stands still gives %v, want ErrUnavailable and when to come back", mode, err)
				}
			})
		}
	}
	calls.Wait()
	if b.engines[keyed].Healthy() {
		t.Error("the breaker does not open: callers queue up behind the server")
	}
	must(t, pg.Continue())
	b.within = func() {}
	for i := range 2 {
		for _, mode := range modes {
			key := fmt.Sprintf("%s %d", mode, i)
			b.audit(t, truth, mode, key, b.finish(t, mode, key))
		}
	}
}
