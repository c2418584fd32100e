// Package changetest tests how SQL stores tell each other the changes that operators make:
// what is peculiar to a table of changes, and so is no rule of store/storetest.
package changetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Store keeps records and tells its changes.
type Store interface {
	retrysafe.Store
	retrysafe.ChangeFeed
}

// A Database is a store that is empty, and its tables.
type Database struct {
	Store Store
	Exec  func(ctx context.Context, script string) error
	// Rows is how many changes are kept.
	Rows func(ctx context.Context) (int, error)
	// Reopen opens it again as it is, without migrations.
	Reopen func(t *testing.T) Store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Answered stores an answer under a key.
func Answered(t *testing.T, s retrysafe.Store, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments", State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}})
	must(t, err)
	return write(t, s, r, "wrong", false)
}

// Announce changes the answer of r, as an operator does.
func Announce(t *testing.T, s retrysafe.Store, r retrysafe.Record) retrysafe.Record {
	t.Helper()
	return write(t, s, r, "right", true)
}

func write(t *testing.T, s retrysafe.Store, r retrysafe.Record, body string, announce bool) retrysafe.Record {
	t.Helper()
	w := r.Update()
	w.State, w.Result, w.Term, w.Announce = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte(body)}, time.Hour, announce
	got, err := s.Swap(t.Context(), w)
	must(t, err)
	return got
}

// Present returns the cursor of now.
func Present(t *testing.T, s Store) string {
	t.Helper()
	_, cursor, err := s.Changes(t.Context(), "")
	must(t, err)
	return cursor
}

// Await reads changes until ref is among them, and returns the cursor behind it.
func Await(t *testing.T, s Store, cursor string, ref retrysafe.Ref) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		changed, next, err := s.Changes(t.Context(), cursor)
		must(t, err)
		if cursor = next; slices.Contains(changed, ref) {
			return cursor
		}
	}
	t.Fatalf("not told within a minute: %q", ref)
	return ""
}

// Quick says that the interval of the reads, on which it rests that a change is told
// within a second, leaves most of that second.
func Quick(t *testing.T, interval time.Duration) {
	t.Helper()
	if interval > 500*time.Millisecond {
		t.Errorf("changes are read every %v, which leaves too little of a second", interval)
	}
}

// Quiet says that ordinary requests leave no trace in the tables of changes.
func Quiet(t *testing.T, d Database) {
	t.Helper()
	cursor := Present(t, d.Store)
	r := Answered(t, d.Store, "k")
	if changed, next, err := d.Store.Changes(t.Context(), cursor); err != nil || len(changed) > 0 || next != cursor {
		t.Errorf("after ordinary writes: %q, %q, %v", changed, next, err)
	}
	if n, err := d.Rows(t.Context()); err != nil || n != 0 {
		t.Errorf("after ordinary writes: %d rows, %v", n, err)
	}
	Announce(t, d.Store, r)
	Await(t, d.Store, cursor, r.Ref)
}

// Lost says that a reader whose cursor is not followed by what is stored is told so. A loss
// is a script that makes it so, by its name.
func Lost(t *testing.T, open func(t *testing.T) Database, losses map[string]string) {
	t.Helper()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			r := Announce(t, d.Store, Answered(t, d.Store, "k"))
			cursor := Present(t, d.Store)
			for range 3 {
				r = Announce(t, d.Store, r)
			}
			Await(t, d.Store, cursor, r.Ref)
			must(t, d.Exec(t.Context(), lose))
			if changed, _, err := d.Store.Changes(t.Context(), cursor); !errors.Is(err, retrysafe.ErrChangesLost) {
				t.Errorf("got %q, %v, want ErrChangesLost", changed, err)
			}
		})
	}
}

// Bounded says that the table keeps the last thousand changes. Many is a script that makes
// it have 1,500.
func Bounded(t *testing.T, d Database, many string) {
	t.Helper()
	r := Answered(t, d.Store, "k")
	must(t, d.Exec(t.Context(), many))
	cursor := Present(t, d.Store)
	Await(t, d.Store, cursor, Announce(t, d.Store, r).Ref)
	if n, err := d.Rows(t.Context()); err != nil || n != 1000 {
		t.Errorf("%d rows, want 1000: %v", n, err)
	}
}

// Untold says that where another program migrates, and the tables are not there yet, an
// operator's change is made all the same, and the store says that it cannot tell. A script
// takes the tables away.
func Untold(t *testing.T, open func(t *testing.T) Database, takes map[string]string) {
	t.Helper()
	for name, take := range takes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			must(t, d.Exec(t.Context(), take))
			s := d.Reopen(t)
			if r := Announce(t, s, Answered(t, s, "k")); string(r.Result.Body) != "right" {
				t.Errorf("got %+v", r)
			}
			if _, _, err := s.Changes(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("got %v, want ErrUnsupported", err)
			}
		})
	}
}
