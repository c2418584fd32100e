package movetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// FollowNotesEveryWrite tests that every kind of write, by every process, is logged, and a
// read is not. A run that was replaced gets nothing from the log.
func FollowNotesEveryWrite(t *testing.T, h Harness) {
	t.Helper()
	s, other := h.open(t), h.open(t)
	old := map[string]retrysafe.Record{}
	for _, key := range []string{"read", "settled", "claimed", "in a transaction", "purged", "purged and back"} {
		r, err := s.Create(t.Context(), fresh(key))
		must(t, err)
		old[key] = r
	}
	source, err := s.Mover().Follow(t.Context(), run)
	must(t, err)
	if m, ok := s.Mover().(storemove.Lister); ok { // the move copies all records first
		must(t, second(m.List(t.Context(), retrysafe.Query{})))
	}
	if _, err := s.Create(t.Context(), fresh("read")); !errors.Is(err, retrysafe.ErrExists) {
		t.Fatal(err)
	}
	must(t, second(other.Create(t.Context(), fresh("new"))))
	settled := done(old["settled"], "x")
	fill(&settled.Record)
	settled.SetCheckpoint = true
	must(t, second(s.Swap(t.Context(), settled)))
	claim := old["claimed"].Update()
	fill(&claim.Record)
	claim.Overwrite, claim.Owner, claim.Result = true, retrysafe.Owner{1}, nil
	must(t, second(other.Swap(t.Context(), claim)))
	if h.Begin == nil {
		must(t, second(s.Swap(t.Context(), done(old["in a transaction"], "x"))))
	} else {
		h.within(t, s, retrysafe.Tx.Commit, func(tx retrysafe.Tx) error {
			return second(tx.Swap(t.Context(), done(old["in a transaction"], "x")))
		})
		h.within(t, s, retrysafe.Tx.Rollback, func(tx retrysafe.Tx) error {
			return second(tx.Create(t.Context(), fresh("rolled back")))
		})
	}
	var due [2]retrysafe.Ref
	for i, key := range []string{"purged", "purged and back"} {
		gone := done(old[key], "x")
		gone.Term, gone.Retain = -time.Second, 0
		must(t, second(s.Swap(t.Context(), gone)))
		due[i] = gone.Ref
	}
	wantPurged := "purged"
	if h.Purge != nil {
		h.Purge(t, other, due)
		must(t, second(s.Create(t.Context(), fresh("purged and back"))))
		wantPurged = "no purged"
	}

	var got []string
	for {
		written, gone, err := s.Mover().Written(t.Context(), run, 1)
		must(t, err)
		if len(written)+len(gone) == 0 {
			break
		}
		asStored(t, written, func(ref retrysafe.Ref) retrysafe.Record { return load(t, s, ref) })
		got = append(got, names(written, gone)...)
	}
	slices.Sort(got)
	if got, want := strings.Join(slices.Compact(got), ", "), "claimed, in a transaction, new, "+wantPurged+", purged and back, settled"; got != want {
		t.Errorf("written: %s; want %s", got, want)
	}
	next := retrysafe.Owner{8}
	if again, err := s.Mover().Follow(t.Context(), next); err != nil || again != source {
		t.Errorf("the store's identity is %v, and was %v; %v", again, source, err)
	}
	if _, _, err := s.Mover().Written(t.Context(), run, 2); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Written of the run before = %v", err)
	}
	if _, err := retire(t.Context(), s); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Retire of the run before = %v", err)
	}
	must(t, s.Mover().Unfollow(t.Context(), next))
	if h.Triggers == nil {
		return
	}
	if n := h.Triggers(t); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
	// A destination that was closed by a move that was given up takes only the same source.
	if again, err := s.Mover().Follow(t.Context(), run); err != nil || again != source {
		t.Errorf("after a move that was given up the store's identity is %v, and was %v; %v", again, source, err)
	}
}

// FollowEndsByItself tests that the log which a killed move leaves behind ends at a time.
// A move that lasts longer has missed writes, and is refused.
func FollowEndsByItself(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	must(t, second(s.Mover().Follow(t.Context(), run)))
	h.ExpireLog(t)
	for _, key := range []string{"a", "b", "c"} {
		put(t, s, key)
	}
	if h.Missed != nil {
		if n := h.Missed(t); n != 1 {
			t.Errorf("%d rows say that a write was missed, want 1", n)
		}
	}
	if _, _, err := s.Mover().Written(t.Context(), run, 10); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("Written = %v", err)
	}
	if _, err := retire(t.Context(), s); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("Retire = %v", err)
	}
	put(t, s, "d")
}

// RetireWaitsForTransactions tests that the writes of a transaction which was there before
// the cut, and commits, are copied. A transaction that would write after the cut cannot,
// and cannot commit.
func RetireWaitsForTransactions(t *testing.T, h Harness) {
	t.Helper()
	s, other := h.open(t), h.open(t)
	must(t, second(s.Mover().Follow(t.Context(), run)))
	late, err := h.BeginIdle(t.Context(), other)
	must(t, err)
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }() // it has ended, unless the test fails
	early, err := h.Begin(t.Context(), other)
	must(t, err)
	must(t, second(early.Create(t.Context(), fresh("early"))))
	type outcome struct {
		rest []string
		err  error
	}
	retired := make(chan outcome, 1)
	go func() {
		rest, err := retire(t.Context(), s)
		retired <- outcome{rest, err}
	}()
	if h.Waits != nil {
		eventually(t, "the cut waits for the transaction", func() bool { return h.Waits(t) })
	}
	must(t, early.Commit(t.Context()))
	if got := <-retired; got.err != nil || strings.Join(got.rest, ", ") != "early" {
		t.Errorf("left to copy: %q, %v", got.rest, got.err)
	}
	if _, err := late.Create(t.Context(), fresh("late")); err == nil {
		t.Error("a transaction that came too late has stored its answer")
	}
	if err := late.Commit(t.Context()); err == nil {
		t.Error("a transaction that came too late has committed")
	}
}
