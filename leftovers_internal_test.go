package retrysafe

import (
	"strconv"
	"testing"
	"time"
)

// Operations that a caller makes up do not use up memory, and what is known of one stays known beside others.
func TestJoinedOperationsAreBounded(t *testing.T) {
	t.Parallel()
	var j joinedOperations
	for i := range 2*maxJoined + 1 {
		j.set(strconv.Itoa(i), seenNewly)
		if len(j.seen) > maxJoined {
			t.Fatalf("%d operations are remembered", len(j.seen))
		}
	}
	j.set("another", unseen)
	if j.of(strconv.Itoa(2*maxJoined)) != seenNewly {
		t.Error("an operation is forgotten although there is room")
	}
}

// A traceparent has its dashes where W3C has them; another one is never stored as a link.
func TestTraceparentsAreWhole(t *testing.T) {
	t.Parallel()
	const whole = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if !isTraceparent(whole) {
		t.Errorf("%s is none", whole)
	}
	for i := range whole {
		if bad := whole[:i] + "a" + whole[i+1:]; whole[i] == '-' && isTraceparent(bad) {
			t.Errorf("%s is one", bad)
		}
	}
	for _, bad := range []string{"", whole + "0", whole[:54] + "0", whole[:10] + "G" + whole[11:]} {
		if isTraceparent(bad) {
			t.Errorf("%q is one", bad)
		}
	}
}

// handClock is a clock that a test sets.
type handClock struct {
	WallClock
	now time.Time
}

func (c *handClock) Now() time.Time { return c.now }

// A record keeps so many notes and no more: the first and the latest.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	var r Record
	for i := range 2 * maxNotes {
		r.AddNote(Note{Text: strconv.Itoa(i)})
		notes := r.Inquiry.Notes
		if n := len(notes); n != min(i+1, maxNotes) || notes[0].Text != "0" || notes[n-1].Text != strconv.Itoa(i) {
			t.Fatalf("after %d notes there are %d, from %q to %q", i+1, n, notes[0].Text, notes[n-1].Text)
		}
	}
}
