package janitor

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

func TestWrote(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := retrysafe.Record{State: retrysafe.StateUnknown, ReadAt: now}
	noted := func(r retrysafe.Record, by, text string) retrysafe.Record {
		r.AddNote(retrysafe.Note{By: by, Text: text})
		return r
	}
	mine := noted(r, "sweeper", "lease lapsed")
	stored := mine
	stored.Inquiry.Notes = []retrysafe.Note{mine.Inquiry.Notes[0]}
	stored.Inquiry.Notes[0].At = now.Truncate(time.Microsecond) // as a store keeps it
	if !wrote(&stored, &mine) {
		t.Error("it does not recognise its own step")
	}
	other := r
	other.ReadAt = now.Add(time.Millisecond)
	claimed := func(nonce string) retrysafe.Record {
		r := mine
		r.Inquiry.Notes = []retrysafe.Note{mine.Inquiry.Notes[0]}
		r.Inquiry.Notes[0].ID = nonce
		return r
	}
	first, second := claimed("1"), claimed("2")
	if !wrote(&first, &first) || wrote(&first, &second) {
		t.Error("two claims that were made of the same read are not told apart by their nonces")
	}
	for name, o := range map[string]retrysafe.Record{
		"of another author": noted(r, "reconciler", "lease lapsed"),
		"another text":      noted(r, "sweeper", "not taken up"),
		"another's":         noted(other, "sweeper", "lease lapsed"),
		"no note":           r,
		"a later state":     func() retrysafe.Record { o := mine; o.State = retrysafe.StateCompleted; return o }(),
		"noted since":       noted(mine, "operator anna", "hm"),
	} {
		if wrote(&o, &mine) {
			t.Errorf("%s is taken for its own", name)
		}
	}
}
