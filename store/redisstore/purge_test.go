package redisstore_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// An index may be behind: a record that was claimed since the purge has read the index, and
// one whose answer is kept for longer, are not deleted.
func TestPurgeGoesByTheRecordAndNotByTheIndex(t *testing.T) {
	t.Parallel()
	url, opts := shared(t)
	s := open(t, url, opts)
	for _, c := range []struct {
		key   string
		state retrysafe.State
		term  time.Duration
		n     int
	}{
		{"claimed", retrysafe.StateInProgress, time.Hour, 0},
		{"lapsed", retrysafe.StateInProgress, -time.Hour, 0},
		{"unknown", retrysafe.StateUnknown, -time.Hour, 0},
		{"kept for longer", retrysafe.StateCompleted, time.Hour, 0},
		{"due", retrysafe.StateCompleted, -time.Hour, 1},
		{"given back", retrysafe.StateRetryable, -time.Hour, 1},
		{"expired", retrysafe.StateExpired, -time.Hour, 1},
	} {
		w := newWrite(c.key)
		w.State, w.Term = c.state, c.term
		_, err := s.Create(t.Context(), w)
		must(t, err)
		must(t, s.IndexAsDone(t.Context(), w.Ref))
		if n, err := s.Purge(t.Context(), 10); n != c.n || err != nil {
			t.Errorf("%s: Purge = %d, %v; want %d", c.key, n, err, c.n)
		}
	}
	if n, err := s.CountAll(t.Context()); n != 4 || err != nil {
		t.Errorf("%d records are left, %v", n, err)
	}
}
