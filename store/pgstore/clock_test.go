package pgstore_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A movedClock is a database whose clock a test can set: a schema before pg_catalog has
// the function that the store's statements read the time by.
type movedClock struct {
	url  string
	conn *pgx.Conn
}

func newMovedClock(t testing.TB) *movedClock {
	t.Helper()
	address := testservers.Shared(t)
	c := &movedClock{conn: connect(t, address)}
	exec(t, c.conn, `CREATE SCHEMA moved`)
	exec(t, c.conn, `CREATE TABLE moved.clock AS SELECT interval '0' AS by`)
	exec(t, c.conn, `CREATE FUNCTION moved.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS
		'SELECT pg_catalog.statement_timestamp() + (SELECT c.by FROM moved.clock c)'`)
	u, err := url.Parse(address)
	must(t, err)
	q := u.Query()
	q.Set("search_path", "moved,pg_catalog,public")
	u.RawQuery = q.Encode()
	c.url = u.String()
	return c
}

// set sets the clock so far ahead of the real time.
func (c *movedClock) set(t testing.TB, by time.Duration) {
	t.Helper()
	exec(t, c.conn, `UPDATE moved.clock SET by = make_interval(secs => $1)`, by.Seconds())
}

const day = 24 * time.Hour

// dueNow lists what is in flight or unknown, and due. Time passes for what the store
// remembers, so that it looks at the clock again.
func dueNow(t *testing.T, s *pgstore.Store) string {
	t.Helper()
	s.Age(2 * time.Second)
	return listed(t, s, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateUnknown}, Due: true})
}

// The database's clock is set back by a day. The key of an owner that is dead is not
// stuck for a day: its lease ends when it would have ended after a heartbeat. An owner
// that is alive keeps its record, and renews its lease and settles by the new clock.
func TestClockSetBackLeavesNoKeyStuck(t *testing.T) {
	t.Parallel()
	c := newMovedClock(t)
	s := open(t, c.url, nil)
	if got := dueNow(t, s); got != "" {
		t.Fatalf("due in an empty store: %q", got)
	}
	put := func(key string, state retrysafe.State) retrysafe.Record {
		t.Helper()
		w := fresh(key)
		w.State = state
		r, err := s.Create(t.Context(), w)
		must(t, err)
		return r
	}
	dead, alive, unknown := put("dead", retrysafe.StateInProgress), put("alive", retrysafe.StateInProgress), put("unknown", retrysafe.StateUnknown)
	answered, err := s.Swap(t.Context(), done(put("answered", retrysafe.StateInProgress), "answer"))
	must(t, err)

	c.set(t, -day)
	if r, err := s.Load(t.Context(), dead.Ref); err != nil || r.Deadline.Sub(r.ReadAt) < day {
		t.Fatalf("the clock that the store sees has not moved: %v at %v, %v", r.Deadline, r.ReadAt, err)
	}
	if got := dueNow(t, s); got != "" {
		t.Errorf("at once due: %q", got) // a live owner would lose its key
	}
	for _, was := range []retrysafe.Record{dead, alive, unknown} {
		r, err := s.Load(t.Context(), was.Ref)
		if left := r.Deadline.Sub(r.ReadAt); err != nil || left > time.Minute || left < 0 || r.Fence() != was.Fence() {
			t.Errorf("%s: %v of its minute is left, fence %v, want %v, %v", was.Key, left, r.Fence(), was.Fence(), err)
		}
	}
	if r, err := s.Load(t.Context(), answered.Ref); err != nil || !r.Deadline.Equal(answered.Deadline) {
		t.Errorf("an answer is kept until %v, and was until %v, %v", r.Deadline, answered.Deadline, err)
	}
	alive, err = s.Swap(t.Context(), beat(alive, time.Minute))
	must(t, err)

	// The clock is set back once more, while revisions are ahead of it: no key is stuck.
	c.set(t, -2*day)
	if got := dueNow(t, s); got != "" {
		t.Errorf("at once due: %q", got)
	}
	for _, key := range []string{"dead", "alive", "unknown"} {
		r, err := s.Load(t.Context(), refOf(key))
		if left := r.Deadline.Sub(r.ReadAt); err != nil || left > 6*time.Hour || left < time.Hour {
			t.Errorf("%s: %v is left after the second time, %v", key, left, err)
		}
	}
	if _, err := s.Swap(t.Context(), done(alive, "answer")); err != nil {
		t.Errorf("the owner that is alive cannot settle: %v", err)
	}
	c.set(t, -2*day+7*time.Hour)
	if got := dueNow(t, s); got != "dead, unknown" {
		t.Errorf("due in the end: %q", got)
	}
}

// A process that starts after the clock was set back finds the leases that are too long,
// among more rows than it looks at in one part.
func TestClockSetBackBeforeTheStart(t *testing.T) {
	t.Parallel()
	c := newMovedClock(t)
	first := open(t, c.url, nil)
	for _, key := range []string{"dead", "dead too"} {
		_, err := first.Create(t.Context(), fresh(key))
		must(t, err)
	}
	exec(t, c.conn, `INSERT INTO moved.retrysafe_keys (id, owner, revision, deadline, created, keep, due, state, head, tail, checkpoint)
		SELECT gen_random_uuid(), gen_random_uuid(), k.revision, k.deadline, k.created, k.keep, k.due - i, 3, '', '', ''
		  FROM generate_series(0, 4999) i, (SELECT * FROM moved.retrysafe_keys LIMIT 1) k`)
	must(t, first.Close())
	c.set(t, -day)
	s := open(t, c.url, nil)
	if got := dueNow(t, s); got != "" {
		t.Errorf("at once due: %q", got)
	}
	c.set(t, -day+2*time.Minute)
	if got := dueNow(t, s); got != "dead, dead too" {
		t.Errorf("due after a lease: %q", got)
	}
}

// The clock is ahead by a day for a while. When it is right again, keys that were
// reserved meanwhile are not stuck, and what lapses afterwards is found: the sweeper's
// watermark comes back with the clock.
func TestClockAheadForAWhile(t *testing.T) {
	t.Parallel()
	c := newMovedClock(t)
	s := open(t, c.url, nil)
	c.set(t, day)
	dueNow(t, s)
	_, err := s.Create(t.Context(), fresh("meanwhile"))
	must(t, err)
	dueNow(t, s)
	c.set(t, 0)
	dueNow(t, s)
	_, err = s.Create(t.Context(), fresh("afterwards"))
	must(t, err)
	dueNow(t, s)
	c.set(t, 2*time.Minute)
	if got := dueNow(t, s); got != "afterwards, meanwhile" {
		t.Errorf("due after a lease: %q", got)
	}
}

// The clock is set forward by more than the retention. Answers are replayed all the same,
// and a reaper deletes none: this machine's clock does not agree.
func TestClockSetForwardForgetsNoAnswer(t *testing.T) {
	t.Parallel()
	c := newMovedClock(t)
	s := open(t, c.url, nil)
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Retention: day}})
	must(t, err)
	runs := 0
	pay := func() {
		t.Helper()
		_, err := e.Do(t.Context(), retrysafe.Call{Ref: refOf("paid"), Operation: "pay"}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			runs++
			return retrysafe.Result{Status: 201}, nil
		})
		must(t, err)
	}
	reaper := janitor.NewReaper(s, nil)
	pay()
	c.set(t, 25*time.Hour)
	pay()
	if n, err := reaper.RunOnce(t.Context()); n != 0 || err == nil || !strings.Contains(err.Error(), "the store's clock is ahead") {
		t.Errorf("the reaper deletes %d, %v", n, err)
	}
	pay()
	c.set(t, 0)
	pay()
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
	if n, err := reaper.RunOnce(t.Context()); n != 0 || err != nil {
		t.Errorf("with the clock right again the reaper deletes %d, %v", n, err)
	}
}

// The clock is set back by a day. The shards of an outbox worker that is dead go to
// another one within an hour, and a live worker keeps its own.
func TestClockSetBackLeavesNoShardHeld(t *testing.T) {
	t.Parallel()
	c := newMovedClock(t)
	box := open(t, c.url, nil).Outbox()
	lease := func(worker byte) int {
		t.Helper()
		held, err := inTurn(func() (outbox.Lease, error) { return box.Lease(t.Context(), retrysafe.Owner{worker}, time.Minute) })
		must(t, err)
		return len(held.Shards)
	}
	lease(1)
	lease(2)
	lease(1) // gives up half
	if n := lease(2); n != outbox.Shards/2 {
		t.Fatalf("the second worker holds %d shards", n)
	}
	c.set(t, -day)
	if n := lease(2); n != outbox.Shards/2 {
		t.Errorf("a live worker holds %d shards after the clock was set back", n)
	}
	c.set(t, -day+61*time.Minute)
	if n := lease(2); n != outbox.Shards {
		t.Errorf("the worker that is left holds %d shards after an hour", n)
	}
}
