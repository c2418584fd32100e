package tiered

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// An instant is a moment on this node's clocks, as time since the cache was made.
type instant struct {
	run  time.Duration // by the monotonic clock, which ages are measured by
	wall time.Duration // by the wall clock, which goes on while the machine is suspended
}

func (t instant) add(d time.Duration) instant { return instant{t.run + d, t.wall + d} }

// before reports whether t is before u by both clocks. A wall clock that is set
// back makes nothing look younger, and one that is set forward costs a look at
// the store.
func (t instant) before(u instant) bool { return t.run < u.run && t.wall < u.wall }

func newClock(now func() time.Time) func() instant {
	if now == nil {
		now = time.Now
	}
	start := now()
	return func() instant {
		t := now()
		return instant{run: t.Sub(start), wall: t.Round(0).Sub(start.Round(0))}
	}
}

// trust returns for how long a record may be handed out, counted from when the
// store was asked for it: it is not due at the end of it, and not older than the
// cache's limit. A thousandth is taken off what is left of its term, which is
// more than two clocks part that are kept in step.
func (s *store) trust(r *retrysafe.Record) time.Duration {
	left := r.Deadline.Sub(r.ReadAt)
	return min(s.maxAge, left-left/1000)
}
