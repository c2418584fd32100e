package tiered

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// An instant is a point in time on this node's clocks, as durations since the cache was
// made.
type instant struct {
	run  time.Duration // by the monotonic clock, which measures ages
	wall time.Duration // by the wall clock, which runs while the machine is suspended
}

func (t instant) add(d time.Duration) instant { return instant{t.run + d, t.wall + d} }

// before reports whether t is before u by both clocks. If the wall clock is set back,
// nothing looks younger. If it is set forward, the store is asked again.
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

// trust returns how long a record may be served from the cache, counted from when the
// store was asked for it: until it is due, or until MaxAge. A thousandth of what is
// left of its term is subtracted, which is more than the drift between two synchronised
// clocks.
func (s *store) trust(r *retrysafe.Record) time.Duration {
	left := r.Deadline.Sub(r.ReadAt)
	return min(s.maxAge, left-left/1000)
}
