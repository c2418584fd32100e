package sqlitestore

import (
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// A Create that recognises itself gets what it recognised, also if another step of
// the same trip hands the record on behind it.
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
	claim := mine
	claim.Claim = retrysafe.Owner{2}
	answers := s.send(t.Context(), trip(step{create: true, r: record("k", 1)}, step{r: claim}))
	if again := answers[0]; again.Err != nil || again.Value.Owner != mine.Owner || again.Value.Revision != mine.Revision {
		t.Errorf("the Create of %v that was sent twice got the record of %v, and %v", mine.Owner, again.Value.Owner, again.Err)
	}
	if claimed := answers[1]; claimed.Err != nil || claimed.Value.Owner != claim.Claim {
		t.Errorf("the claim got %+v, %v", claimed.Value, claimed.Err)
	}
}
