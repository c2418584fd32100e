package sqlitestore

import (
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// A Create that recognises itself gets the record that it recognised, even if a later
// request of the same batch hands the record on to another owner.
func TestCreateThatRecognisesItselfIsShownItself(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mine, err := s.Create(t.Context(), record("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	claim := mine.Update()
	claim.Overwrite, claim.Owner = true, retrysafe.Owner{2}
	answers := s.sendDeferred(t.Context(), batchOf(request{create: true, w: record("k", 1)}, request{w: claim}))
	if again := answers[0]; again.Err != nil || again.Value.Owner != mine.Owner || again.Value.Revision != mine.Revision {
		t.Errorf("the Create of %v that was sent twice got the record of %v, and %v", mine.Owner, again.Value.Owner, again.Err)
	}
	if claimed := answers[1]; claimed.Err != nil || claimed.Value.Owner != claim.Owner {
		t.Errorf("the claim got %+v, %v", claimed.Value, claimed.Err)
	}
}
