package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A crashing is a store of which a crash forgets something.
type crashing struct {
	*testing.T
	*memstore.Store
}

func tenantKey(key string) retrysafe.Ref { return retrysafe.Ref{Scope: "tenant", Key: key} }

func (c crashing) reserve(key string, relaxed bool) retrysafe.Record {
	c.Helper()
	got, err := c.Create(c.Context(), retrysafe.Write{Term: time.Minute, Relaxed: relaxed, Record: retrysafe.Record{
		Ref: tenantKey(key), State: retrysafe.StateInProgress, Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}})
	if err != nil {
		c.Fatal(err)
	}
	return got
}

func (c crashing) claim(r retrysafe.Record, relaxed bool) {
	c.Helper()
	w := r.Update()
	w.Owner, w.Overwrite, w.Attempt, w.Relaxed, w.Term = retrysafe.Owner{2}, true, r.Attempt+1, relaxed, time.Minute
	if _, err := c.Swap(c.Context(), w); err != nil {
		c.Fatal(err)
	}
}

func (c crashing) begin() *memstore.Tx {
	c.Helper()
	tx, err := c.Begin(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return tx
}

// attempt is the attempt that a key is at, or 0 if there is none.
func (c crashing) attempt(key string) int {
	c.Helper()
	r, err := c.Load(c.Context(), tenantKey(key))
	if err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
		c.Fatal(err)
	}
	return r.Attempt
}

// A crash undoes relaxed steps from the last to the first, and those only that no
// durable step has followed.
func TestCrashForgetsRelaxedSteps(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		do        func(c crashing)
		forgotten int
		attempts  [2]int // of the keys one and two
	}{
		"nothing":              {func(crashing) {}, 0, [2]int{0, 0}},
		"a durable step":       {func(c crashing) { c.reserve("one", false) }, 0, [2]int{1, 0}},
		"a reservation":        {func(c crashing) { c.reserve("one", true) }, 1, [2]int{0, 0}},
		"a claim":              {func(c crashing) { c.claim(c.reserve("one", false), true) }, 1, [2]int{1, 0}},
		"reservation, claim":   {func(c crashing) { c.claim(c.reserve("one", true), true) }, 2, [2]int{0, 0}},
		"two keys":             {func(c crashing) { c.reserve("one", true); c.reserve("two", true) }, 2, [2]int{0, 0}},
		"a durable step after": {func(c crashing) { c.reserve("one", true); c.reserve("two", false) }, 0, [2]int{1, 1}},
		"and one before":       {func(c crashing) { c.reserve("two", false); c.reserve("one", true) }, 1, [2]int{0, 1}},
		"a durable claim":      {func(c crashing) { c.claim(c.reserve("one", true), false) }, 0, [2]int{2, 0}},
		"a commit after": {func(c crashing) {
			c.reserve("one", true)
			if err := c.begin().Commit(c.Context()); err != nil {
				c.Fatal(err)
			}
		}, 0, [2]int{1, 0}},
		"a purge after": {func(c crashing) {
			mustCreate(c.T, c.Store, moved(reservation("due"), retrysafe.StateCompleted, -time.Second))
			c.reserve("one", true)
			if n, err := c.Purge(c.Context(), 10); n != 1 || err != nil {
				c.Fatal(n, err)
			}
		}, 0, [2]int{1, 0}},
		"a rollback after": {func(c crashing) {
			c.reserve("one", true)
			if err := c.begin().Rollback(c.Context()); err != nil {
				c.Fatal(err)
			}
		}, 1, [2]int{0, 0}},
		"held by a transaction": {func(c crashing) {
			c.reserve("one", true)
			c.reserve("two", true)
			if _, err := c.begin().Reserve(c.Context(), tenantKey("two")); err != nil {
				c.Fatal(err)
			}
		}, 1, [2]int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := crashing{t, memstore.New(nil)}
			want.do(c)
			if got := c.Crash(); got != want.forgotten {
				t.Errorf("%d steps are forgotten, want %d", got, want.forgotten)
			}
			if got := [2]int{c.attempt("one"), c.attempt("two")}; got != want.attempts {
				t.Errorf("the keys are at attempts %v, want %v", got, want.attempts)
			}
			if got := c.Crash(); got != 0 {
				t.Errorf("a second crash forgets %d steps", got)
			}
		})
	}
}

// What a crash has forgotten takes no room.
func TestCrashFreesRoom(t *testing.T) {
	t.Parallel()
	c := crashing{t, memstore.New(&memstore.Options{MaxRecords: 1})}
	for range 3 {
		c.reserve("one", true)
		if got := c.Crash(); got != 1 {
			t.Fatalf("%d steps are forgotten", got)
		}
	}
}

// After a crash the store is charged for what is left, and purges nothing that is not due
// any more.
func TestCrashLeavesTheBooksInOrder(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	begun := mustCreate(t, s, reservation("stored"))
	records, bytes := s.Used()
	answer := moved(begun.Update(), retrysafe.StateCompleted, 0)
	answer.Relaxed, answer.Result = true, &retrysafe.Result{Status: 201, Body: make([]byte, 10_000)}
	mustSwap(t, s, answer)
	other := moved(reservation("new"), retrysafe.StateCompleted, 0)
	other.Relaxed = true
	mustCreate(t, s, other)
	if got := s.Crash(); got != 2 {
		t.Errorf("%d steps are forgotten, want 2", got)
	}
	if r, b := s.Used(); r != records || b != bytes {
		t.Errorf("charged for %d records and %d bytes, want %d and %d", r, b, records, bytes)
	}
	if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("Purge = %d, %v, and nothing is due", n, err)
	}
	if _, err := s.Load(t.Context(), begun.Ref); err != nil {
		t.Errorf("the attempt in progress: %v", err)
	}
}
