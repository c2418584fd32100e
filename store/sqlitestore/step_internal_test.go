package sqlitestore

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

func trip(steps ...step) (q []*queued) {
	for _, st := range steps {
		q = append(q, &queued{step: st, row: row{id: id(idOf(st.r.Ref))}})
	}
	return q
}

func record(key string, owner byte) retrysafe.Record {
	return retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s", Key: key}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{owner}, Attempt: 1, Term: time.Minute, Retain: time.Hour,
	}
}

// Of a trip that finds the write lock taken those who do not need it have their
// answers, and the others travel again.
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
	stale := old
	stale.Revision--
	steps := []step{
		{create: true, r: record("new", 1)}, {create: true, r: record("old", 2)}, {r: stale},
		{r: record("absent", 1)}, {create: true, r: record("new", 2)}, {r: old}, {create: true, r: record("old", 2)},
	}
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// The last step but one changes the row of the old key, so all who met it wait.
	for i, want := range []error{errLocked, errLocked, errLocked, retrysafe.ErrNotFound, errLocked, errLocked, errLocked} {
		if got := s.send(t.Context(), trip(steps...))[i]; !errors.Is(got.Err, want) || got.Value != nil {
			t.Errorf("step %d: %v, want %v", i, got.Err, want)
		}
	}
	steps[5] = step{create: true, r: record("old", 1)} // it recognises itself
	for i, want := range []error{errLocked, retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound, errLocked, nil, retrysafe.ErrExists} {
		got := s.send(t.Context(), trip(steps...))[i]
		if !errors.Is(got.Err, want) || (got.Value == nil) != (i == 0 || i == 3 || i == 4) {
			t.Errorf("step %d: %v, %v, want %v", i, got.Value, got.Err, want)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	// With the lock free the same trip is made at once, and each has a record of its
	// own.
	answers := s.send(t.Context(), trip(steps...))
	seen := map[*retrysafe.Record]bool{}
	for i, want := range []error{nil, retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound, retrysafe.ErrExists, nil, retrysafe.ErrExists} {
		got := answers[i]
		if !errors.Is(got.Err, want) || (got.Value == nil) != (i == 3) {
			t.Errorf("step %d: %v, %v, want %v", i, got.Value, got.Err, want)
		}
		if got.Value == nil {
			continue
		}
		if seen[got.Value] || got.Value.Key != steps[i].r.Key || got.Value.Owner != (retrysafe.Owner{1}) || got.Value.ReadAt.IsZero() {
			t.Errorf("step %d got %+v", i, got.Value)
		}
		seen[got.Value] = true
	}
}
