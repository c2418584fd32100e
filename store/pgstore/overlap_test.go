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
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// overlapping opens a store whose batches overlap, as they do on a slow disk.
func overlapping(t testing.TB, url string, opts *pgstore.Options) *pgstore.Store {
	t.Helper()
	s := open(t, url, opts)
	s.SetOverlap(true)
	// One batch of each kind decides.
	got, err := s.Create(t.Context(), fresh("first of all"))
	must(t, err)
	must(t, second(s.Swap(t.Context(), done(got, "answer"))))
	return s
}

// waits returns when so many commits wait at the gates.
func waits(t *testing.T, conn *pgx.Conn, commits int) {
	t.Helper()
	eventually(t, fmt.Sprint(commits, " commits wait"), func() bool {
		return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) == commits
	})
}

// Commits that hang do not keep others from being executed, but from being answered:
// what is not committed is not shown, and no batch has the answers of another. When one
// is through, its callers are answered and no others.
func TestAnswersOfOverlappingBatchesAwaitTheirCommits(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := overlapping(t, url, &pgstore.Options{Timeout: patience})
	const batches = 4
	var reserved [batches]retrysafe.Record
	for i := range batches {
		var err error
		reserved[i], err = s.Create(t.Context(), fresh(fmt.Sprint("settled ", i)))
		must(t, err)
	}
	for _, c := range []struct {
		name string
		key  func(i int) string
		step func(i int) (retrysafe.Record, error)
		want retrysafe.State
	}{
		{"reservations", func(i int) string { return fmt.Sprint("reserved ", i) }, func(i int) (retrysafe.Record, error) {
			return s.Create(t.Context(), fresh(fmt.Sprint("reserved ", i)))
		}, retrysafe.StateInProgress},
		{"settlements", func(i int) string { return fmt.Sprint("settled ", i) }, func(i int) (retrysafe.Record, error) {
			return s.Swap(t.Context(), done(reserved[i], fmt.Sprint("answer ", i)))
		}, retrysafe.StateCompleted},
	} {
		var gates [batches]*gate
		var answers [batches]chan reply
		for i := range batches { // before an open transaction keeps triggers from being made
			gates[i], answers[i] = closeGate(t, url, beforeCommit, c.key(i)), make(chan reply, 1)
		}
		for i := range batches {
			go func() {
				rec, err := c.step(i)
				answers[i] <- reply{rec, err}
			}()
			waits(t, gates[i].conn, i+1) // beside those before it
		}
		for _, i := range rand.Perm(batches) {
			if got, err := s.Load(t.Context(), refOf(c.key(i))); err == nil && got.State == c.want {
				t.Errorf("%s: %d is seen before its commit", c.name, i)
			}
			gates[i].open(t)
			if got := <-answers[i]; got.err != nil || got.rec.Ref != refOf(c.key(i)) || got.rec.State != c.want {
				t.Errorf("%s: %d gets %q, %v, %v", c.name, i, got.rec.Key, got.rec.State, got.err)
			}
			for n, other := range answers {
				if len(other) > 0 {
					t.Errorf("%s: %d is answered, and its commit hangs", c.name, n)
				}
			}
		}
	}
}

// A commit that the server refuses, after it has returned the rows, was not applied: its
// requests are sent again, each by itself, and only the one that cannot be committed
// fails.
func TestCommitThatIsRefusedAfterItsRows(t *testing.T) {
	t.Parallel()
	const members = 6
	url := testservers.Shared(t)
	s := overlapping(t, url, &pgstore.Options{MaxQueue: members, Timeout: patience})
	conn := connect(t, url)
	exec(t, conn, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'refused at the commit' USING ERRCODE = '23514'; END $$`)
	refused := pgstore.ID(refOf("member 3"))
	exec(t, conn, fmt.Sprintf(`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON retrysafe_keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = '%x') EXECUTE FUNCTION refuse()`, refused[:]))
	var records []retrysafe.Write
	for i := range members {
		records = append(records, fresh(fmt.Sprint("member ", i)))
	}
	g := closeGate(t, url, beforeWrite, "first")
	for i, r := range together(t, g, plug(s, g), creates(s, records)...) {
		stored, err := s.Load(t.Context(), records[i].Ref)
		switch {
		case i == 3 && (r.err == nil || !errors.Is(err, retrysafe.ErrNotFound)):
			t.Errorf("the one that cannot be committed gets %v, and is stored as %+v", r.err, stored)
		case i != 3 && (r.err != nil || r.rec.Ref != records[i].Ref || stored.Owner != records[i].Owner):
			t.Errorf("member %d gets %q, %v; stored is %v, %v", i, r.rec.Key, r.err, stored.Owner, err)
		}
	}
}

// Many callers race for few keys while batches overlap: a key is reserved for one owner,
// of all swaps of a revision one is applied, and no step is refused as busy, because the
// batches of one store have no key in common.
func TestOverlappingBatchesOfFewKeys(t *testing.T) {
	t.Parallel()
	const rounds, keys, callers = 10, 12, 5
	url := testservers.Shared(t)
	s := overlapping(t, url, &pgstore.Options{Timeout: patience})
	for round := range rounds {
		var mu sync.Mutex
		owners, winners := map[string]retrysafe.Owner{}, map[string]string{}
		var wg sync.WaitGroup
		for key := range keys {
			name := fmt.Sprint(round, " ", key)
			for caller := range callers {
				wg.Go(func() {
					w := fresh(name)
					got, err := s.Create(t.Context(), w)
					if err != nil && !errors.Is(err, retrysafe.ErrExists) || got.Ref != w.Ref || (err == nil) != (got.Owner == w.Owner) {
						t.Errorf("create %s: %q, %v", name, got.Key, err)
						return
					}
					mu.Lock()
					if first, ok := owners[name]; ok && first != got.Owner {
						t.Errorf("%s was given to two owners", name)
					}
					owners[name] = got.Owner
					mu.Unlock()
					if got.State != retrysafe.StateInProgress {
						return
					}
					body := fmt.Sprint("answer of ", caller)
					settled, err := s.Swap(t.Context(), done(got, body))
					if err != nil && !errors.Is(err, retrysafe.ErrConflict) || settled.Ref != w.Ref {
						t.Errorf("swap %s: %q, %v", name, settled.Key, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if first, ok := winners[name]; ok && first != string(settled.Result.Body) {
						t.Errorf("%s has the answers %q and %q", name, first, settled.Result.Body)
					}
					winners[name] = string(settled.Result.Body)
				})
			}
		}
		wg.Wait()
		for name, body := range winners {
			if got, err := s.Load(t.Context(), refOf(name)); err != nil || string(got.Result.Body) != body || got.Owner != owners[name] {
				t.Errorf("%s is stored as %+v, %v", name, got, err)
			}
		}
	}
}

// Steps of one key that come while its batch is committed are taken after that, in their
// order, and another key's beside it.
func TestStepsOfOneKeyAwaitTheCommitBefore(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := overlapping(t, url, &pgstore.Options{Timeout: patience})
	g := closeGate(t, url, beforeCommit, "held")
	w := fresh("held")
	answers := make(chan reply, 3)
	create := func(w retrysafe.Write) {
		got, err := s.Create(t.Context(), w)
		answers <- reply{got, err}
	}
	go create(w)
	waits(t, g.conn, 1)
	go create(w)             // the same step, sent again
	go create(fresh("held")) // another's
	for i := range 20 {
		must(t, second(s.Create(t.Context(), fresh(fmt.Sprint("beside ", i)))))
	}
	if len(answers) > 0 {
		t.Errorf("a step of the key is answered before the commit: %+v", <-answers)
	}
	if n := one[int](t, g.conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); n > 0 {
		t.Errorf("%d batches wait for a lock: a key was sent twice", n)
	}
	g.open(t)
	own := 0
	for range 3 {
		switch got := <-answers; {
		case got.err == nil && got.rec.Owner == w.Owner:
			own++
		case !errors.Is(got.err, retrysafe.ErrExists) || got.rec.Owner != w.Owner:
			t.Errorf("a step of the key gets %v, %v", got.rec.Owner, got.err)
		}
	}
	if own != 2 {
		t.Errorf("%d of two sent steps of the owner recognise themselves", own)
	}
}

// If the server has no further connection, batches overlap as far as there are
// connections, and no step fails.
func TestOverlapWithFewConnections(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	admin := connect(t, url)
	must(t, open(t, url, nil).Close()) // migrates
	role := newRole(t, admin)
	exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	exec(t, admin, `ALTER ROLE `+role+` CONNECTION LIMIT 3`) // the pool has one
	s := overlapping(t, as(t, url, role)+"&pool_max_conns=1", &pgstore.Options{Timeout: patience, SkipMigrations: true})
	const steps, room = 5, 2
	var gates [steps]*gate
	for i := range steps {
		gates[i] = closeGate(t, url, beforeCommit, fmt.Sprint("step ", i))
	}
	exec(t, admin, `GRANT SELECT ON gates TO `+role)
	var wg sync.WaitGroup
	var failed atomic.Bool
	for i := range steps {
		wg.Go(func() {
			if _, err := s.Create(t.Context(), fresh(fmt.Sprint("step ", i))); err != nil {
				failed.Store(true)
				t.Errorf("with few connections: %v", err)
			}
		})
		if i < room {
			waits(t, admin, i+1)
		}
	}
	eventually(t, "a further connection is refused", func() bool { return s.IsFull() || failed.Load() })
	for _, g := range gates {
		g.open(t)
	}
	wg.Wait()
	// For some time none is asked for any more: one batch at a time, on what there is.
	for i := range 50 {
		wg.Go(func() {
			if _, err := s.Create(t.Context(), fresh(fmt.Sprint("later ", i))); err != nil {
				t.Errorf("later: %v", err)
			}
		})
	}
	wg.Wait()
	if n := s.OwnConnections(); n > room {
		t.Errorf("%d connections are kept, want %d", n, room)
	}
	if n := s.IdleConnections(); n != room {
		t.Errorf("%d connections are idle and open, want all %d: a step that took another one has to give that one back", n, room)
	}
}

// The server is killed with -9 while batches overlap.
func TestKilledServerLosesNothingOfOverlappingBatches(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, nil)
	killUnderLoadOf(t, pg, overlapping(t, pg.URL("postgres"), nil), 3)
}

// The connections break while batches overlap: what was answered is there, and an error
// is no answer.
func TestBrokenConnectionsOfOverlappingBatches(t *testing.T) {
	t.Parallel()
	proxy, s, truth := behindProxy(t, &pgstore.Options{Timeout: patience})
	s.SetOverlap(true)
	b := newTill(t, s, patient)
	for _, fault := range breaks {
		for at := range 6 {
			var wg sync.WaitGroup
			proxy.Plan(atByte(netfault.ToClient, int64(200+at*700), fault))
			for i := range 12 {
				wg.Go(func() { b.broken(t, truth, keyed, fmt.Sprint(fault, at, " ", i), "") })
			}
			wg.Wait()
			proxy.Plan(nil)
		}
	}
}

// A store whose batches overlap, and whose callers leave, is closed with the last of them.
func TestOverlappingStoreIsClosedInOrder(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, err := pgstore.Open(t.Context(), url+"&application_name=overlapping", nil)
	must(t, err)
	s.SetOverlap(true)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for n := 0; ; n++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+n%20)*time.Millisecond)
				_, err := s.Create(ctx, fresh(fmt.Sprint(i, " ", n)))
				cancel()
				if errors.Is(err, pgstore.ErrClosed) {
					return
				}
			}
		})
	}
	conn := connect(t, url)
	eventually(t, "it is at work", func() bool { return one[int](t, conn, `SELECT count(*) FROM retrysafe_keys`) > 100 })
	must(t, s.Close())
	wg.Wait()
	eventually(t, "no connection is left", func() bool {
		return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'overlapping'`) == 0
	})
}
