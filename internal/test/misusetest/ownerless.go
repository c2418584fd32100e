package misusetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Ownerless tests that a Create without an owner recognises no record as its own: both
// callers would run.
func Ownerless(t *testing.T, s retrysafe.Store) {
	t.Helper()
	w := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "without an owner"}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1,
	}}
	if _, err := s.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Create(t.Context(), w); !errors.Is(err, retrysafe.ErrExists) {
			t.Errorf("Create of a key that exists = %v", err)
		}
	}
}

// PurgeLimit tests that the limit of a purge holds for the records of all states together.
func PurgeLimit(t *testing.T, s retrysafe.Store) {
	t.Helper()
	for i, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired} {
		for n := range 2 {
			w := retrysafe.Write{Term: -time.Hour, Record: retrysafe.Record{
				Ref:   retrysafe.Ref{Scope: "tenant", Key: fmt.Sprint("purged ", i, n)},
				State: state, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
			}}
			if state == retrysafe.StateCompleted {
				w.Result = &retrysafe.Result{Status: 201}
			}
			if _, err := s.Create(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []int{3, 3, 0} {
		if n, err := s.Purge(t.Context(), 3); n != want || err != nil {
			t.Errorf("Purge of 3 = %d, %v; want %d", n, err, want)
		}
	}
}
