package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/seed"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// shelf is a store whose time a test can move: the rows grow older.
type shelf struct {
	*pgstore.Store
	peers []*pgstore.Store // other handles
	conn  *pgx.Conn
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	url := testservers.Shared(t)
	return &shelf{open(t, url, nil), []*pgstore.Store{open(t, url, nil)}, connect(t, url)}
}

// age lets whole seconds pass.
func (s *shelf) age(t *testing.T, d time.Duration) {
	t.Helper()
	exec(t, s.conn, `UPDATE retrysafe_keys SET deadline = deadline - $1::bigint * 1000000, created = created - $1::bigint * 1000000,
		due = CASE WHEN state = 1 THEN due ELSE due - $1::bigint END`, int64(d/time.Second))
	for _, p := range append(s.peers, s.Store) {
		p.Age(d)
	}
}

// put stores a record in a state, with its deadline after term.
func (s *shelf) put(t *testing.T, key string, state retrysafe.State, term time.Duration) retrysafe.Record {
	t.Helper()
	r := fresh(key)
	r.State, r.Term = state, term
	if state == retrysafe.StateCompleted {
		r.Result = &retrysafe.Result{Status: 201}
	}
	got, err := s.Create(t.Context(), r)
	must(t, err)
	return got
}

// listed returns the keys that a query gives, in order.
func listed(t *testing.T, s *pgstore.Store, q retrysafe.Query) string {
	t.Helper()
	var keys []string
	q.Limit = 7 // in pages
	for {
		page, err := s.List(t.Context(), q)
		must(t, err)
		for _, r := range page {
			keys = append(keys, r.Key)
		}
		if len(page) < q.Limit {
			slices.Sort(keys)
			return strings.Join(keys, ", ")
		}
		q.After = page[len(page)-1].Ref
	}
}

// due makes sure that every handle lists just these, also when it has listed
// often before.
func (s *shelf) due(t *testing.T, when, want string) {
	t.Helper()
	for n, p := range append(s.peers, s.Store) {
		for range 3 {
			if got := listed(t, p, retrysafe.Query{Due: true}); got != want {
				t.Errorf("%s: handle %d lists %q, want %q", when, n, got, want)
			}
			p.Age(0)
		}
	}
}

// What is due is listed by every handle until it is settled, however often it was
// listed before, and however often its lease was renewed.
func TestDueIsListedUntilItIsSettled(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	lapsed := s.put(t, "lapsed", retrysafe.StateInProgress, time.Minute)
	unknown := s.put(t, "unknown", retrysafe.StateUnknown, 2*time.Minute)
	alive := s.put(t, "alive", retrysafe.StateInProgress, 3*time.Minute)
	s.put(t, "accepted", retrysafe.StateAccepted, 4*time.Minute)
	s.put(t, "answer", retrysafe.StateCompleted, time.Hour)
	s.due(t, "at first", "")
	s.age(t, 90*time.Second)
	s.due(t, "after 90 s", "lapsed")
	s.age(t, time.Minute)
	s.due(t, "after 150 s", "lapsed, unknown")
	alive, err := s.Swap(t.Context(), beat(alive, 3*time.Minute))
	must(t, err)
	for range 5 { // its lease is renewed again and again, and the watermark passes
		s.age(t, 2*time.Minute)
		alive, err = s.Swap(t.Context(), beat(alive, 3*time.Minute))
		must(t, err)
		s.due(t, "while it is alive", "accepted, lapsed, unknown")
	}
	// It was filed anew, so that the watermark need not wait for it.
	if late := one[int64](t, s.conn, `SELECT deadline / 1000000 - 1600000000 - due FROM retrysafe_keys WHERE id = $1`, pgstore.ID(alive.Ref)); late > 240 {
		t.Errorf("it is filed %d s before its lease ends", late)
	}
	s.age(t, 210*time.Second)
	s.due(t, "after its death", "accepted, alive, lapsed, unknown")
	must(t, second(s.Swap(t.Context(), done(lapsed, "late"))))
	must(t, second(s.Swap(t.Context(), beat(unknown, time.Minute)))) // a reconciler will look again
	s.due(t, "once settled", "accepted, alive")
	s.age(t, time.Minute)
	s.due(t, "when it is time to look again", "accepted, alive, unknown")
	for range 10 {
		s.age(t, 10*time.Minute)
		s.due(t, "much later", map[bool]string{true: "accepted, alive, answer, unknown", false: "accepted, alive, unknown"}[listed(t, s.Store, retrysafe.Query{Due: true, States: []retrysafe.State{retrysafe.StateCompleted}}) != ""])
	}
	s.due(t, "in the end", "accepted, alive, answer, unknown")
	if got := listed(t, s.Store, retrysafe.Query{Due: true, States: []retrysafe.State{retrysafe.StateUnknown}}); got != "unknown" {
		t.Errorf("of the unknown ones it lists %q", got)
	}
}

// A lease that is cut short is due when it says so, though it was filed for later.
func TestLeaseThatIsCutShortIsListed(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	r := s.put(t, "short", retrysafe.StateInProgress, time.Hour)
	must(t, second(s.Swap(t.Context(), beat(r, time.Minute))))
	r = s.put(t, "by a little", retrysafe.StateInProgress, 3*time.Minute+5*time.Second)
	must(t, second(s.Swap(t.Context(), beat(r, 3*time.Minute))))
	s.due(t, "at first", "")
	s.age(t, 2*time.Minute)
	s.due(t, "after two minutes", "short")
	s.age(t, time.Minute+time.Second)
	s.due(t, "after three minutes", "by a little, short")
}

// Where no duty runs, a list of what is in flight reads a new watermark, once the last one
// is older than a minute: the clock may have been set back.
func TestOldWatermarkIsReadAgain(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	inFlight := retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}}
	s.put(t, "k", retrysafe.StateInProgress, 24*time.Hour)
	must(t, second(s.List(t.Context(), retrysafe.Query{Due: true})))
	s.Age(2 * time.Minute)
	old := s.Watermark()
	if got := listed(t, s.Store, inFlight); got != "k" || s.Watermark() <= old {
		t.Errorf("listed is %q, by the watermark %d, that of two minutes before is %d", got, s.Watermark(), old)
	}
}

// A transaction that commits late is not passed by: the watermark waits for it,
// also if it is another role's, whose doings the server does not show.
func TestLateCommitIsFound(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := &shelf{open(t, url, nil), nil, connect(t, url)}
	role := newRole(t, s.conn)
	exec(t, s.conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON retrysafe_keys TO `+role)
	exec(t, s.conn, `GRANT SELECT ON retrysafe_schema TO `+role)
	s.peers = append(s.peers, open(t, as(t, url, role), nil))
	// The later in a second it begins, the nearer is the watermark.
	eventually(t, "a second is nearly over", func() bool { return time.Now().Nanosecond() > 900_000_000 })
	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	r := fresh("late")
	r.Term = 10 * time.Millisecond
	must(t, second(s.Tx(tx).Create(t.Context(), r)))
	sweep := func() {
		for _, p := range append(s.peers, s.Store) {
			if got := listed(t, p, retrysafe.Query{Due: true}); got != "" {
				t.Errorf("%q is listed before it is committed", got)
			}
		}
	}
	// The watermark is some seconds behind. It moves once a second.
	for began := time.Now(); time.Since(began) < 7500*time.Millisecond; time.Sleep(250 * time.Millisecond) {
		sweep()
	}
	must(t, tx.Commit(t.Context()))
	s.due(t, "after its commit", "late")
}

// Should something have been passed by all the same, the next look at the whole
// table finds it.
func TestWhatWasPassedByIsFound(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.put(t, "passed", retrysafe.StateInProgress, time.Second)
	s.age(t, 10*time.Second)
	s.due(t, "at first", "passed")
	s.Pass()
	if got := listed(t, s.Store, retrysafe.Query{Due: true}); got != "" {
		t.Fatalf("behind the watermark it lists %q; this test passes nothing by", got)
	}
	s.Age(pgstore.Rewind + time.Second)
	s.Pass()
	s.due(t, "after an hour", "passed")
}

// Records in flight are listed whether a handle has a watermark or not, also if their
// leases were renewed while it moved, and with records in other states that are not final.
func TestInFlightIsListedAboveTheWatermark(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	alive := s.put(t, "alive", retrysafe.StateInProgress, time.Minute)
	s.put(t, "lapsed", retrysafe.StateInProgress, time.Minute)
	s.put(t, "unknown", retrysafe.StateUnknown, time.Minute)
	s.put(t, "accepted", retrysafe.StateAccepted, time.Minute)
	for i := range 20 {
		s.put(t, fmt.Sprint("answer ", i), retrysafe.StateCompleted, time.Hour)
	}
	open := func(when, want string, states ...retrysafe.State) {
		t.Helper()
		for n, p := range append(s.peers, s.Store) {
			if got := listed(t, p, retrysafe.Query{States: states}); got != want {
				t.Errorf("%s: handle %d lists %q, want %q", when, n, got, want)
			}
			if got := listed(t, p, retrysafe.Query{Scope: alive.Scope, States: states}); got != want {
				t.Errorf("%s: handle %d lists %q of the scope, want %q", when, n, got, want)
			}
		}
	}
	const running = retrysafe.StateInProgress
	open("without a watermark", "alive, lapsed", running)
	listed(t, s.Store, retrysafe.Query{Due: true}) // the other handle still has none
	for range 5 {
		s.age(t, 2*time.Minute)
		var err error
		alive, err = s.Swap(t.Context(), beat(alive, 3*time.Minute))
		must(t, err)
		open("while one is alive", "alive, lapsed", running)
		open("while one is alive", "accepted, alive, lapsed, unknown", running, retrysafe.StateAccepted, retrysafe.StateUnknown)
		listed(t, s.Store, retrysafe.Query{Due: true})
	}
	s.put(t, "late", running, time.Minute)
	must(t, second(s.Swap(t.Context(), done(alive, "answer"))))
	open("after a settlement", "lapsed, late", running)
	// Rows at or below the watermark are not read.
	s.Pass()
	if got := listed(t, s.Store, retrysafe.Query{States: []retrysafe.State{running}}); strings.Contains(got, "lapsed") {
		t.Errorf("it lists %q, and reads what the watermark has passed", got)
	}
}

// A list for an operator does not wait for a sweep that reads all slots.
func TestListsDoNotWaitForDuties(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.put(t, "alive", retrysafe.StateInProgress, time.Hour)
	s.due(t, "at first", "")
	release := s.HoldDuties()
	defer release()
	for _, q := range []retrysafe.Query{{}, {States: []retrysafe.State{retrysafe.StateInProgress}}} {
		if got := listed(t, s.Store, q); got != "alive" {
			t.Errorf("beside a sweep %+v lists %q", q, got)
		}
	}
	must(t, second(s.Count(t.Context(), "")))
}

// An answer is kept for as long as it was to be, from when it was stored: the
// retention of its call, the policy's, or one that its handler set.
func TestPurgeByRetention(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	e, err := retrysafe.New(s.Store, unhurriedBy(retrysafe.Policy{Lease: time.Minute}))
	must(t, err)
	for key, retain := range map[string][2]time.Duration{ // of the call, and set by the handler
		"a second":                {time.Second, 0},
		"an hour":                 {time.Hour, 0},
		"a day":                   {0, 0},
		"an hour, was a day":      {0, time.Hour},
		"a day, was a second":     {time.Second, 24 * time.Hour},
		"a second, was an hour":   {time.Hour, time.Second},
		"500 ms, less than a bit": {500 * time.Millisecond, 0},
	} {
		c := call(key)
		c.Retention = retain[0]
		must(t, second(e.Do(t.Context(), c, func(_ context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			if retain[1] > 0 {
				x.Retain(retain[1])
			}
			return retrysafe.Result{Status: 201}, nil
		})))
	}
	// One that took longer than its answer is kept, and one that settled at once.
	late := s.put(t, "an hour, late", retrysafe.StateInProgress, time.Minute)
	s.put(t, "in flight", retrysafe.StateInProgress, time.Minute)
	s.put(t, "unknown", retrysafe.StateUnknown, time.Minute)
	purge := func(when string, left ...string) {
		t.Helper()
		for {
			n, err := s.peers[0].Purge(t.Context(), 2)
			must(t, err)
			if n == 0 {
				break
			}
		}
		slices.Sort(left)
		if got := listed(t, s.Store, retrysafe.Query{}); got != strings.Join(left, ", ") {
			t.Errorf("%s: left are %q, want %q", when, got, left)
		}
	}
	day := []string{"a day", "a day, was a second", "in flight", "unknown"}
	hour := []string{"an hour", "an hour, was a day", "an hour, late"}
	// An answer that came within its lease of a minute may be kept that much longer.
	s.age(t, 2*time.Minute)
	purge("after two minutes", slices.Concat(day, hour)...)
	s.age(t, 50*time.Minute)
	late.Retain = time.Hour
	must(t, second(s.Swap(t.Context(), done(late, "late"))))
	s.age(t, 7*time.Minute)
	purge("after 59 minutes", slices.Concat(day, hour)...)
	s.age(t, 3*time.Minute)
	purge("after 62 minutes", append(day, "an hour, late")...)
	s.age(t, 48*time.Minute)
	purge("58 minutes after the late one", append(day, "an hour, late")...)
	s.age(t, 3*time.Minute)
	purge("61 minutes after the late one", day...)
	s.age(t, 22*time.Hour)
	purge("before a day is over", day...)
	s.age(t, 2*time.Hour)
	purge("after a day", "in flight", "unknown")
	s.age(t, 1000*time.Hour)
	purge("for ever", "in flight", "unknown")
}

// A purge of more rows than one statement deletes goes on, from one retention to the next, up
// to its limit.
func TestPurgeOfManyGoesOnUpToItsLimit(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	exec(t, s.conn, `INSERT INTO retrysafe_keys (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
		SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 1, CASE WHEN i <= 2500 THEN 60 ELSE 3600 END, 1, 3, '\x01', '\x02', '' FROM generate_series(1, 3000) i`)
	for _, c := range []struct{ limit, want int }{{0, 0}, {1000, 1000}, {1600, 1600}, {1000, 400}, {1000, 0}} {
		if n, err := s.Purge(t.Context(), c.limit); err != nil || n != c.want {
			t.Errorf("Purge(%d) = %d, %v, want %d", c.limit, n, err, c.want)
		}
	}
}

// A purge skips a row that another transaction has locked, and deletes it the next
// time.
func TestPurgeLeavesLockedRows(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.put(t, "free", retrysafe.StateCompleted, time.Second)
	locked := s.put(t, "locked", retrysafe.StateCompleted, time.Second)
	s.age(t, 10*time.Minute)
	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	must(t, second(tx.Exec(t.Context(), `SELECT FROM retrysafe_keys WHERE id = $1 FOR UPDATE`, pgstore.ID(locked.Ref))))
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("Purge beside a lock: %d, %v, want the other row", n, err)
	}
	must(t, tx.Rollback(t.Context()))
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("Purge after the lock: %d, %v", n, err)
	}
}

// Purges of three nodes beside a load take what is due and final, once, and
// nothing else.
func TestPurgesBesideALoad(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 120
	url := testservers.Shared(t)
	patient := &pgstore.Options{Timeout: time.Minute}
	stores := []*pgstore.Store{open(t, url, patient), open(t, url, patient), open(t, url, patient)}
	var load, purges sync.WaitGroup
	var over atomic.Bool
	var purged atomic.Int64
	for _, s := range stores {
		purges.Go(func() {
			for last := false; !last; {
				last = over.Load() // once more after the load
				n, err := s.Purge(t.Context(), 50)
				purged.Add(int64(n))
				if err != nil && !errors.Is(err, retrysafe.ErrBusy) {
					t.Errorf("Purge = %v", err)
					return
				}
			}
		})
	}
	for c := range clients {
		load.Go(func() {
			s := stores[c%len(stores)]
			for i := range each {
				r := fresh(fmt.Sprint([]string{"flight ", "unknown ", "kept ", "short "}[i%4], c, " ", i))
				r.Term = time.Millisecond // its lease is over before it is settled
				var got retrysafe.Record
				err := unlessBusy(func() (err error) {
					got, err = s.Create(t.Context(), r)
					return err
				})
				var next retrysafe.Write
				switch i % 4 {
				case 1:
					next = beat(got, time.Millisecond)
					next.State = retrysafe.StateUnknown
				case 2:
					next = done(got, "kept")
				case 3:
					got.Retain = time.Millisecond
					next = done(got, "short")
				default:
				}
				if err == nil && i%4 > 0 { // a purge may look at the row this moment
					err = unlessBusy(func() error { return second(s.Swap(t.Context(), next)) })
				}
				if err != nil {
					t.Errorf("%s: %v", r.Key, err)
					return
				}
			}
		})
	}
	load.Wait()
	over.Store(true)
	purges.Wait()
	for !t.Failed() { // the last answers may have been stored just now
		n, err := stores[0].Purge(t.Context(), 1000)
		must(t, err)
		if purged.Add(int64(n)); purged.Load() == clients*each/4 {
			break
		}
	}
	got := map[string]int{}
	for _, key := range strings.Split(listed(t, stores[0], retrysafe.Query{}), ", ") {
		got[strings.Fields(key)[0]]++
	}
	if want := map[string]int{"flight": clients * each / 4, "unknown": clients * each / 4, "kept": clients * each / 4}; !maps.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
}

// Whatever happens to records, in whatever order, what List calls due is what has
// passed its deadline, and Purge takes just the final ones of those, at the latest
// when their lease would have ended too, or after five minutes.
func TestDueInRandomHistories(t *testing.T) {
	t.Parallel()
	const keys, steps = 24, 400
	rnd := mrand.New(mrand.NewPCG(seed.For(t), 0))
	s := newShelf(t)
	nodes := append(s.peers, s.Store)
	terms := []time.Duration{2 * time.Second, 30 * time.Second, 4 * time.Minute, 3 * time.Hour}
	retains := []time.Duration{time.Second, 90 * time.Second, time.Hour, 24 * time.Hour}
	pick := func(d []time.Duration) time.Duration { return d[rnd.IntN(len(d))] }
	first := map[string]time.Duration{} // how much longer an answer may be kept: what was left of its lease
	for i := range steps {
		key := fmt.Sprint(rnd.IntN(keys))
		node := nodes[rnd.IntN(len(nodes))]
		if i%20 == 0 { // a sweeper settles what is due, so that the watermark moves on
			lapsed, err := node.List(t.Context(), retrysafe.Query{Due: true, States: []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateUnknown}})
			must(t, err)
			for _, r := range lapsed {
				w := beat(r, r.Retain)
				w.State = retrysafe.StateRetryable
				must(t, second(node.Swap(t.Context(), w)))
			}
		}
		got, err := node.Load(t.Context(), call(key).Ref)
		switch n := rnd.IntN(10); {
		case errors.Is(err, retrysafe.ErrNotFound):
			r := fresh(key)
			r.State, r.Term, r.Retain = retrysafe.StateInProgress, pick(terms), pick(retains)
			if n == 0 {
				r.State = retrysafe.StateAccepted
			}
			must(t, second(node.Create(t.Context(), r)))
			first[key] = r.Term
		case err != nil:
			t.Fatal(err)
		case n < 3: // time passes
			s.age(t, []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute, 2 * time.Hour}[rnd.IntN(4)])
		case n < 4:
			purgeAndCheck(t, s, node, first)
		case got.State.Forgettable() && n != 5 || n == 4: // a new attempt
			next := fresh(key)
			next.Overwrite, next.Expect = true, got.Fence()
			next.Term, next.Retain, next.Attempt = pick(terms), pick(retains), 1+rnd.IntN(2)
			must(t, second(node.Swap(t.Context(), next)))
			first[key] = next.Term
		case n < 6: // a heartbeat, also of an owner that was given up, or comes back
			w := beat(got, pick(terms))
			w.State = retrysafe.StateInProgress
			must(t, second(node.Swap(t.Context(), w)))
			first[key] = max(first[key], w.Term)
		case n < 7:
			w := beat(got, pick(terms))
			w.State, w.Result = retrysafe.StateUnknown, nil
			must(t, second(node.Swap(t.Context(), w)))
			first[key] = w.Term
		default:
			if n == 9 {
				got.Retain = pick(retains)
			}
			must(t, second(node.Swap(t.Context(), done(got, "answer"))))
		}
		dueAndCheck(t, s, node)
	}
}

// keysOf are the keys of the records that the query selects, all of them if it is nil.
func keysOf(records []retrysafe.Record, q *retrysafe.Query) (keys []string) {
	for i := range records {
		if q == nil || storekit.Matches(q, &records[i]) {
			keys = append(keys, records[i].Key)
		}
	}
	return keys
}

func isSubset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// dueAndCheck compares what is listed as due with what is.
func dueAndCheck(t *testing.T, s *shelf, node *pgstore.Store) {
	t.Helper()
	all, err := node.List(t.Context(), retrysafe.Query{})
	must(t, err)
	got, err := node.List(t.Context(), retrysafe.Query{Due: true})
	must(t, err)
	found := map[string]bool{}
	for _, r := range got {
		found[r.Key] = true
		if !r.Due() {
			t.Errorf("%s, %s, is listed as due before its deadline", r.Key, r.State)
		}
	}
	for _, states := range [][]retrysafe.State{isAccepted, isUnknown, isEither} {
		for _, due := range []bool{false, true} {
			q := retrysafe.Query{States: states, Due: due}
			list, err := node.List(t.Context(), q)
			must(t, err)
			later, err := node.List(t.Context(), retrysafe.Query{})
			must(t, err)
			// What was due before is due, and what is due now is due later.
			least, got, most := keysOf(all, &q), keysOf(list, nil), keysOf(later, &q)
			if !isSubset(least, got) || !isSubset(got, most) {
				t.Errorf("%+v gives %q, want no less than %q and no more than %q", q, got, least, most)
			}
		}
	}
	for _, r := range all {
		if r.Due() && !found[r.Key] {
			row := one[string](t, s.conn, `SELECT format('state %s, keep %s, due in %s s', state, keep, due + 1600000000 - extract(epoch FROM now())::int) FROM retrysafe_keys WHERE id = $1`, pgstore.ID(r.Ref))
			t.Errorf("%s, %s, is due since %v and not listed: %s", r.Key, r.State, r.ReadAt.Sub(r.Deadline), row)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// purgeAndCheck compares what a purge takes with what it may and must take.
func purgeAndCheck(t *testing.T, s *shelf, node *pgstore.Store, lease map[string]time.Duration) {
	t.Helper()
	before, err := node.List(t.Context(), retrysafe.Query{})
	must(t, err)
	must(t, second(node.Purge(t.Context(), 1000)))
	after, err := node.List(t.Context(), retrysafe.Query{})
	must(t, err)
	left := map[string]bool{}
	var now time.Time
	for _, r := range after {
		left[r.Key], now = true, r.ReadAt
	}
	for _, r := range before {
		may := r.State.Forgettable() && (r.Due() || now.After(r.Deadline) || len(after) == 0)
		must := r.State.Forgettable() && r.ReadAt.After(r.Deadline.Add(min(lease[r.Key], 5*time.Minute)+2*time.Second))
		if !left[r.Key] && !may {
			t.Errorf("%s, %s, is gone %v before its deadline", r.Key, r.State, r.Deadline.Sub(r.ReadAt))
		}
		if left[r.Key] && must {
			row := one[string](t, s.conn, `SELECT format('state %s, keep %s, due in %s s', state, keep, due + 1600000000 - extract(epoch FROM now())::int) FROM retrysafe_keys WHERE id = $1`, pgstore.ID(r.Ref))
			t.Errorf("%s, %s, is kept %v after its deadline: %s", r.Key, r.State, r.ReadAt.Sub(r.Deadline), row)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
