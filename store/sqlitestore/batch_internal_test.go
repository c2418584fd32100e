package sqlitestore

import (
	"errors"
	"path/filepath"
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
