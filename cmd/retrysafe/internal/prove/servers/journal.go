package servers

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
)

// A sink takes broken promises in, as [prove.Result.Violatef] does.
type sink func(invariant, key, format string, args ...any)

// A journal is what clients know: which keys they sent, and what they were told.
type journal struct {
	broken  sink
	shown   atomic.Int64 // answers that clients were shown
	unknown atomic.Int64 // keys whose outcome was found to be unknown

	mu   sync.Mutex
	keys []*sent
}

// sent is a key that clients have sent.
type sent struct {
	key  string
	mode effect.Mode

	mu     sync.Mutex
	shown  *retrysafe.Result // the first answer that a client was shown
	denied []string          // receipts of calls that were told that nothing had happened
	judged bool
}

func newJournal(broken sink) *journal { return &journal{broken: broken} }

func (j *journal) open(key string, m effect.Mode) *sent {
	s := &sent{key: key, mode: m}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keys = append(j.keys, s)
	return s
}

// pending returns the keys that were not judged, or all; first those without an answer.
func (j *journal) pending(all bool) []*sent {
	j.mu.Lock()
	defer j.mu.Unlock()
	var open, answered []*sent
	for _, s := range j.keys {
		switch {
		case s.judged && !all:
		case s.shown == nil:
			open = append(open, s)
		default:
			answered = append(answered, s)
		}
	}
	return slices.Concat(open, answered)
}

// told notes what a call was told. It reports whether that is the last word.
func (j *journal) told(s *sent, mine string, out *retrysafe.Outcome, err error) (final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && s.shown == nil:
		s.shown = &out.Result
		j.shown.Add(1)
		return true
	case err == nil:
		if !s.shown.Equal(&out.Result) {
			j.broken("S2", s.key, "%s: two clients were shown different answers", s.mode)
		}
		return true
	case errors.Is(err, retrysafe.ErrUnknown):
		if s.mode != effect.Unprotected {
			j.broken("S9", s.key, "%s: the outcome is unknown, though the effect is protected: %v", s.mode, err)
		}
		if s.shown != nil {
			j.broken("S4", s.key, "%s: a client was shown an answer, and another one is told %v", s.mode, err)
		}
		return true
	case errors.Is(err, retrysafe.ErrMismatch), errors.Is(err, retrysafe.ErrGone):
		j.broken("S4", s.key, "%s: a retry of the same request gets %v", s.mode, err)
		return true
	case retrysafe.IsNotExecuted(err), errors.Is(err, retrysafe.ErrUnavailable):
		s.denied = append(s.denied, mine)
	}
	return false
}
