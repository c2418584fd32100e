package sqlitestore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

func batchOf(requests ...request) (all []*queued) {
	for _, q := range requests {
		all = append(all, &queued{request: q, row: row{id: id(idOf(q.w.Ref))}})
	}
	return all
}

func record(key string, owner byte) retrysafe.Write {
	return retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s", Key: key}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{owner}, Attempt: 1, Retain: time.Hour,
	}}
}

// If a batch finds the write lock taken, the requests that do not need it have their
// answers, and the others go into a batch that waits for it.
func TestTripBesideAWriter(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	old, err := s.Create(t.Context(), record("old", 1))
	if err != nil {
		t.Fatal(err)
	}
	stale := old.Update()
	stale.Expect.Revision--
	requests := []request{
		{create: true, w: record("new", 1)}, {create: true, w: record("old", 2)}, {w: stale},
		{w: record("absent", 1)}, {create: true, w: record("new", 2)}, {w: old.Update()}, {create: true, w: record("old", 2)},
	}
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// The last request but one changes the row of the old key, so all requests for it wait.
	for i, want := range []error{errLocked, errLocked, errLocked, retrysafe.ErrNotFound, errLocked, errLocked, errLocked} {
		if got := s.sendDeferred(t.Context(), batchOf(requests...))[i]; !errors.Is(got.Err, want) || got.Value != nil {
			t.Errorf("request %d: %v, want %v", i, got.Err, want)
		}
	}
	requests[5] = request{create: true, w: record("old", 1)} // it recognises itself
	for i, want := range []error{errLocked, retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound, errLocked, nil, retrysafe.ErrExists} {
		got := s.sendDeferred(t.Context(), batchOf(requests...))[i]
		if !errors.Is(got.Err, want) || (got.Value == nil) != (i == 0 || i == 3 || i == 4) {
			t.Errorf("request %d: %v, %v, want %v", i, got.Value, got.Err, want)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	// When the lock is free, the same batch is written at once, and each answer is a record
	// of its own.
	answers := s.sendDeferred(t.Context(), batchOf(requests...))
	seen := map[*retrysafe.Record]bool{}
	for i, want := range []error{nil, retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound, retrysafe.ErrExists, nil, retrysafe.ErrExists} {
		got := answers[i]
		if !errors.Is(got.Err, want) || (got.Value == nil) != (i == 3) {
			t.Errorf("request %d: %v, %v, want %v", i, got.Value, got.Err, want)
		}
		if got.Value == nil {
			continue
		}
		if seen[got.Value] || got.Value.Key != requests[i].w.Key || got.Value.Owner != (retrysafe.Owner{1}) || got.Value.ReadAt.IsZero() {
			t.Errorf("request %d got %+v", i, got.Value)
		}
		seen[got.Value] = true
	}
}

// A batch whose records are too large to be written at once is stored as a whole, or not
// at all.
func TestLargeBatchThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	if _, err := s.db.ExecContext(t.Context(), `CREATE TRIGGER refusal BEFORE INSERT ON retrysafe_keys WHEN length(new.rec) > 600001 BEGIN SELECT RAISE(FAIL, 'not today'); END`); err != nil {
		t.Fatal(err)
	}
	var requests []request
	for i := range 3 {
		w := record(fmt.Sprint(i), 1)
		w.Request = make([]byte, 600_000-100_000*i) // the first alone is refused, and is written with the second
		requests = append(requests, request{create: true, w: w})
	}
	for i, a := range s.sendDeferred(t.Context(), batchOf(requests...)) {
		if a.Err == nil {
			t.Errorf("request %d succeeds", i)
		}
		if _, err := s.Load(t.Context(), requests[i].w.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("request %d: Load = %v", i, err)
		}
	}
}

// Each announced write of a batch is told under its own key, and one that was refused is
// not told.
func TestAnnouncedWritesOfABatch(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	_, cursor, err := s.Changes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	announced := func(key string) request {
		w := completed(reserve(t, s, key), "changed")
		w.Announce = true
		return request{w: w}
	}
	first, second, third := announced("first"), announced("second"), announced("third")
	first.w.Announce = false
	late := first
	late.w.Announce = true
	for i, a := range s.sendDeferred(t.Context(), batchOf(first, late, second, third)) {
		if (a.Err != nil) != (i == 1) {
			t.Errorf("request %d: %v", i, a.Err)
		}
	}
	if changed, _, err := s.Changes(t.Context(), cursor); err != nil || !slices.Equal(changed, []retrysafe.Ref{second.w.Ref, third.w.Ref}) {
		t.Errorf("changed are %q, %v", changed, err)
	}
}

func TestOptionsOfBatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, want Options }{
		{Options{}, Options{MaxBatch: 256, MaxQueue: 10_000, Timeout: 10 * time.Second}},
		{Options{MaxBatch: 2, MaxQueue: 3, Timeout: 4 * time.Second}, Options{MaxBatch: 2, MaxQueue: 3, Timeout: 4 * time.Second}},
	} {
		s, err := Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), &c.set)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, b := range []*batcher{&s.deferred, &s.immediate} {
			if got := (Options{MaxBatch: b.MaxBatch, MaxQueue: b.MaxQueue, Timeout: b.Timeout}); got != c.want {
				t.Errorf("a batcher has %+v, want %+v", got, c.want)
			}
		}
	}
	for _, bad := range []Options{{MaxBatch: -1}, {MaxQueue: -1}, {Timeout: -1}} {
		if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), &bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// A connection that has broken fails the steps that use it, and the next ones have a new
// one.
func TestBrokenConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	reserve(t, s, "before")
	if err := s.deferredConn.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), record("meanwhile", 1)); err == nil {
		t.Error("a step on a connection that is closed succeeds")
	}
	reserve(t, s, "after")
}

// If the machine's clock is set back, time stands still for this process: a record that is
// due stays due.
func TestTimeDoesNotGoBack(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	s.clock.Store(ahead.UnixMicro())
	if r := reserve(t, s, "k"); r.UpdatedAt.Before(ahead) || r.ReadAt.Before(ahead) {
		t.Errorf("written at %v and read at %v, and it was %v", r.UpdatedAt, r.ReadAt, ahead)
	}
}
