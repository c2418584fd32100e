// Package pause is how long a loop waits before it does its work again. The pause grows with
// each failure in a row, so that a store that is down is not asked again and again, nor its
// failure logged as often; and it is never quite the same, so that nodes which failed
// together do not come back together.
package pause

import "time"

// longest bounds the pause after failures, unless the pause of a loop without failures is
// longer.
const longest = time.Minute

// After returns the pause after so many failures in a row, of a loop that pauses for every
// without one: it doubles with each failure, up to a minute.
func After(every time.Duration, failures int) time.Duration {
	return Doubled(every, failures, max(every, longest))
}

// Doubled returns d, doubled so many times, but not more than most.
func Doubled(d time.Duration, times int, most time.Duration) time.Duration {
	for ; times > 0 && d < most; times-- {
		d *= 2
	}
	return min(d, most)
}

// Jitter returns d, give or take a quarter: at, from 0 to 1, is the point within that
// range.
func Jitter(d time.Duration, at float64) time.Duration {
	return time.Duration((0.75 + at/2) * float64(d))
}
