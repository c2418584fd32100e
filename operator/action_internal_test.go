package operator

import (
	"testing"

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
