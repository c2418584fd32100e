package pgstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

var (
	isAccepted = []retrysafe.State{retrysafe.StateAccepted}
	isUnknown  = []retrysafe.State{retrysafe.StateUnknown}
	isEither   = []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateAccepted}
)

// A worker that looks for work, and an operator that looks for unknown outcomes,
// read a page of what they look for, and none of the many rows beside it.
func TestFiledRowsAreFoundAmongMany(t *testing.T) {
	t.Parallel()
	const rows, waiting, unknown, limit = 100_000, 3000, 200, 50
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	behind := open(t, url, &pgstore.Options{PgBouncer: true})
	exec(t, conn, `ALTER TABLE retrysafe_keys SET (autovacuum_enabled = off)`)
	early := prepared(t, url, s)
	exec(t, conn, `INSERT INTO retrysafe_keys (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
		SELECT gen_random_uuid(), gen_random_uuid(), i, 9e15, i, CASE WHEN i % 3 = 0 THEN 3600 ELSE 86400 END, i % 90000, CASE WHEN i % 100 = 0 THEN 2 ELSE 3 END, '\x01', '\x02', ''
		FROM generate_series(1, $1) i`, rows)
	want := map[retrysafe.State][]string{}
	var all sync.WaitGroup
	for i := range waiting + unknown {
		r := fresh(fmt.Sprint(i))
		r.State, r.Term = retrysafe.StateAccepted, time.Hour
		if i >= waiting {
			r.State = retrysafe.StateUnknown
		}
		if i%10 == 0 {
			r.Term = -time.Second
		}
		if i%100 == 1 {
			r.Scope = "another tenant"
		}
		want[r.State] = append(want[r.State], r.Key)
		all.Go(func() {
			if _, err := s.Create(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	keys := func(states []retrysafe.State, some func(n int) bool) string {
		var keys []string
		for _, state := range states {
			for _, key := range want[state] {
				if n, _ := strconv.Atoi(key); some(n) {
					keys = append(keys, key)
				}
			}
		}
		slices.Sort(keys)
		return strings.Join(keys, ", ")
	}
	any := func(int) bool { return true }
	for _, states := range [][]retrysafe.State{isAccepted, isUnknown, isEither} {
		for _, node := range []*pgstore.Store{s, behind} {
			if listed(t, node, retrysafe.Query{States: states}) != keys(states, any) {
				t.Errorf("not just all that is %v is listed", states)
			}
			if listed(t, node, retrysafe.Query{States: states, Due: true}) != keys(states, func(n int) bool { return n%10 == 0 }) {
				t.Errorf("not just all that is %v and due is listed", states)
			}
			if listed(t, node, retrysafe.Query{States: states, Scope: "another tenant"}) != keys(states, func(n int) bool { return n%100 == 1 }) {
				t.Errorf("not just all that is %v of a tenant is listed", states)
			}
		}
	}
	pages := func(when string, c session) {
		t.Helper()
		exec(t, c.Conn, "BEGIN")
		defer exec(t, c.Conn, "ROLLBACK")
		exec(t, c.Conn, c.settings)
		for states, most := range map[string]int{"{1}": 3 * limit, "{5}": 3 * unknown, "{1,5}": 3 * (limit + unknown)} {
			plan := explained(t, c, fmt.Sprintf(`retrysafe_list_buckets (-1000000000, 'ffffffff-ffff-ffff-ffff-ffffffffffff', '%s', %d, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', false)`, states, limit))
			if read := blocksRead(t, plan); read > most {
				t.Errorf("%s: a page of %s reads %d blocks, want %d at most:\n%s", when, states, read, most, plan)
			}
		}
	}
	pages("planned when it was empty", early)
	pages("never analysed", prepared(t, url, s))
	pages("never analysed, behind a pooler", prepared(t, url, behind))
	exec(t, conn, `VACUUM ANALYZE retrysafe_keys`)
	pages("analysed", prepared(t, url, s))
	pages("analysed, behind a pooler", prepared(t, url, behind))
}

// explained runs a prepared statement and returns how.
func explained(t *testing.T, c session, execute string) string {
	t.Helper()
	rows, err := c.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE "+execute, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return strings.Join(lines, "\n")
}

// blocksRead is how many blocks a statement has read that was explained.
func blocksRead(t *testing.T, plan string) (n int) {
	t.Helper()
	first, _, _ := strings.Cut(plan[strings.Index(plan, "Buffers:"):], "\n") // of the whole
	for _, m := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(first, -1) {
		blocks, err := strconv.Atoi(m[1])
		must(t, err)
		n += blocks
	}
	return n
}

// A row is in the file of its state, from wherever it came, and out of it once it
// is in another.
func TestRowIsFiledByItsState(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	const file = `SELECT CASE keep WHEN 2147483646 THEN 'accepted' WHEN 2147483647 THEN 'unknown' ELSE 'retention' END FROM retrysafe_keys WHERE id = $1`
	filed := func(r retrysafe.Record) string {
		t.Helper()
		want := map[retrysafe.State]string{retrysafe.StateAccepted: "accepted", retrysafe.StateUnknown: "unknown"}[r.State]
		if want == "" {
			want = "retention"
		}
		if got := one[string](t, s.conn, file, pgstore.ID(r.Ref)); got != want {
			t.Errorf("%s is in the file of %s", r.Key, got)
		}
		return want
	}
	for from := retrysafe.StateAccepted; from <= retrysafe.StateExpired; from++ {
		for to := retrysafe.StateAccepted; to <= retrysafe.StateExpired; to++ {
			for _, how := range []string{"a step", "a claim", "a step in a transaction"} {
				r := s.put(t, fmt.Sprintf("%s to %s by %s", from, to, how), from, time.Minute)
				filed(r)
				w := r.Update()
				w.State, w.Term, w.Result = to, time.Minute, nil
				if to == retrysafe.StateCompleted {
					w.Result = &retrysafe.Result{Status: 201}
				}
				if how == "a claim" {
					w.Overwrite, w.Owner = true, fresh("").Owner
				}
				if how == "a step in a transaction" {
					tx, err := s.Pool().Begin(t.Context())
					must(t, err)
					must(t, second(s.Tx(tx).Swap(t.Context(), w)))
					must(t, tx.Commit(t.Context()))
				} else {
					must(t, second(s.Swap(t.Context(), w)))
				}
				filed(w.Record)
			}
		}
	}
	for key, retain := range map[string]time.Duration{"for ever": 1<<63 - 1, "for the longest": 2147483647 * time.Second} { // no retention is taken for a file
		r := fresh(key)
		r.Retain = retain
		got, err := s.Create(t.Context(), r)
		must(t, err)
		filed(got)
		must(t, second(s.Swap(t.Context(), done(got, "kept"))))
		filed(got)
	}
}

// An answer that was stored long after its first lease is filed anew by a purge, under the
// second in which its retention begins: another slot would keep it for longer, or let each
// purge read it.
func TestPurgeFilesLateAnswersByTheirDeadline(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	r := s.put(t, "late", retrysafe.StateCompleted, 2*time.Hour)
	exec(t, s.conn, `UPDATE retrysafe_keys SET due = due - 100000000`) // as if its first lease were years ago
	if n, err := s.Purge(t.Context(), 100); n != 0 || err != nil {
		t.Fatalf("Purge = %d, %v; want no key", n, err)
	}
	if late := one[int](t, s.conn, `SELECT due - (deadline / 1000000 - 1600000000 - keep) FROM retrysafe_keys WHERE id = $1`, pgstore.ID(r.Ref)); late != 0 {
		t.Errorf("it is filed %d seconds late", late)
	}
	s.age(t, 3*time.Hour)
	if n, err := s.Purge(t.Context(), 100); n != 1 || err != nil {
		t.Errorf("after its retention Purge = %d, %v; want one key", n, err)
	}
}

// Workers of three nodes that look for work beside purges and sweeps take up each
// piece once, also what was put back, and what became unknown is there at the end.
func TestWorkersTakeUpAllWork(t *testing.T) {
	t.Parallel()
	const work, workers = 300, 6
	url := testservers.Shared(t)
	nodes := []*pgstore.Store{open(t, url, nil), open(t, url, nil), open(t, url, nil)}
	var accept, run, sweep sync.WaitGroup
	var settled, over atomic.Int64
	for n, node := range nodes {
		accept.Go(func() {
			for i := n; i < work; i += len(nodes) {
				r := fresh([]string{"put back", "unknown", "short", "kept"}[i%4] + fmt.Sprint(" ", i))
				r.State, r.Attempt, r.Request, r.Term = retrysafe.StateAccepted, 0, []byte("request"), time.Millisecond // a worker may come after its deadline
				if _, err := node.Create(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
		sweep.Go(func() {
			for over.Load() == 0 {
				if err := errors.Join(second(node.Purge(t.Context(), 50)), second(node.List(t.Context(), retrysafe.Query{Due: true, Limit: 1000}))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range workers {
		run.Go(func() {
			node := nodes[n%len(nodes)]
			var q retrysafe.Query
			q.States, q.Limit = isAccepted, 7
			for deadline := time.Now().Add(time.Minute); settled.Load() < work && time.Now().Before(deadline) && !t.Failed(); {
				page, err := node.List(t.Context(), q)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range page {
					next := r.Update()
					next.State, next.Term, next.Attempt = retrysafe.StateInProgress, time.Minute, r.Attempt+1
					next.Overwrite, next.Owner = true, fresh("").Owner
					got, err := node.Swap(t.Context(), next)
					if errors.Is(err, retrysafe.ErrConflict) || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrBusy) {
						continue // another has it, or is about to
					}
					if err != nil || string(got.Request) != "request" {
						t.Errorf("%s: %+v, %v", r.Key, got, err)
						return
					}
					kind, _, _ := strings.Cut(r.Key, " ")
					end := done(got, kind)
					switch {
					case kind == "put" && got.Attempt < 3:
						end.State, end.Result, end.Term = retrysafe.StateAccepted, nil, time.Hour
					case kind == "unknown":
						end.State, end.Result, end.Term = retrysafe.StateUnknown, nil, time.Millisecond
					case kind == "short":
						end.Term = time.Millisecond
					default:
					}
					if end.State != retrysafe.StateAccepted {
						settled.Add(1)
					}
					if err := unlessBusy(func() error { return second(node.Swap(t.Context(), end)) }); err != nil {
						t.Errorf("%s: %v", r.Key, err)
					}
				}
				q.After = retrysafe.Ref{}
				if len(page) == q.Limit {
					q.After = page[len(page)-1].Ref
				}
			}
		})
	}
	accept.Wait()
	run.Wait()
	over.Store(1)
	sweep.Wait()
	if settled.Load() != work {
		t.Fatalf("%d of %d were settled", settled.Load(), work)
	}
	if left := listed(t, nodes[0], retrysafe.Query{States: isAccepted}); left != "" {
		t.Errorf("left is %q", left)
	}
	for _, q := range []retrysafe.Query{{States: isUnknown}, {States: isUnknown, Due: true}, {States: isEither}} {
		if got := strings.Count(listed(t, nodes[1], q), "unknown"); got != work/4 {
			t.Errorf("%+v gives %d unknown outcomes, want %d", q, got, work/4)
		}
	}
}

// What is ahead of the clock is not deleted before the clock has passed it, so that
// the next generation of its key cannot repeat a revision.
func TestPurgeWaitsForTheClock(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	r := s.put(t, "ahead", retrysafe.StateCompleted, time.Second)
	s.age(t, 10*time.Minute)
	exec(t, s.conn, `UPDATE retrysafe_keys SET revision = revision + 3600000000`)
	if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("Purge of what is ahead of the clock = %d, %v", n, err)
	}
	exec(t, s.conn, `UPDATE retrysafe_keys SET revision = $1`, r.Revision)
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("Purge once the clock has passed it = %d, %v", n, err)
	}
}
