package operator

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A repetition of an action finds the note of its first try, also one that was written
// before notes had IDs. It takes no other action's note for its own.
func TestDoneFindsTheNote(t *testing.T) {
	t.Parallel()
	r := retrysafe.Record{Inquiry: retrysafe.Inquiry{Notes: []retrysafe.Note{
		{By: "operator anna", Text: "released: node 3 is gone [action old]"},
		{By: "operator anna", Text: "released: as in [action cited]", ID: "new"},
	}}}
	for id, want := range map[string]bool{"old": true, "new": true, "cited": false, "ol": false} {
		if _, got := done(&r, "operator anna", id); got != want {
			t.Errorf("done(%q) = %t, want %t", id, got, want)
		}
		if _, got := done(&r, "operator bert", id); got {
			t.Errorf("done(%q) of another operator", id)
		}
	}
}

// The rest of a retention is rounded up to a twenty-fourth of it, unless that is less than a
// second.
func TestLeftIsRoundedUp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct{ retain, left, want time.Duration }{
		{24 * time.Hour, time.Hour, time.Hour}, {24 * time.Hour, time.Hour + 1, 2 * time.Hour}, {24 * time.Hour, 0, 0}, {24 * time.Hour, -time.Hour, 0},
		{24 * time.Second, 1, time.Second}, {24*time.Second - 1, 1, 1},
	} {
		if got := left(&retrysafe.Record{Retain: c.retain, ReadAt: now, Deadline: now.Add(c.left)}); got != c.want {
			t.Errorf("%v of %v is %v, want %v", c.left, c.retain, got, c.want)
		}
	}
}

// A group is as old as the first of its records, in whichever order they are listed.
func TestGroupsAreAsOldAsTheirFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, ages := range [][2]time.Duration{{time.Hour, 2 * time.Hour}, {2 * time.Hour, time.Hour}} {
		all := groups{}
		for _, age := range ages {
			all.add(&retrysafe.Record{State: retrysafe.StateUnknown, UpdatedAt: now.Add(-age), ReadAt: now})
		}
		if got := all.sorted(); len(got) != 1 || got[0].Count != 2 || got[0].Age != 2*time.Hour || !got[0].Oldest.Equal(now.Add(-2*time.Hour)) {
			t.Errorf("%v: %+v", ages, got)
		}
	}
}
