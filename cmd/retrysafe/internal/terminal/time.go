package terminal

import (
	"fmt"
	"time"
)

// never is how far away a deadline is that was set to be reached never.
const never = 50 * 365 * 24 * time.Hour

// Ago returns t in relation to now: "3 min ago", "in 2 h". Now is by the clock that t
// is from.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	switch {
	case d < -never:
		return "never"
	case d < 0:
		return "in " + Duration(nearest(-d))
	case d < time.Second:
		return "just now"
	default:
		return Duration(d) + " ago"
	}
}

// nearest rounds a duration to the nearest of its largest unit, so that what was to last a
// day is not 23 hours a moment later.
func nearest(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour} {
		if d < 60*unit {
			return (d - 1).Round(unit)
		}
	}
	if d < 48*time.Hour {
		return (d - 1).Round(time.Hour)
	}
	return (d - 1).Round(24 * time.Hour)
}

// Soon is [Ago] for a moment that is expected: if it has passed, the event may come at
// any moment.
func Soon(t, now time.Time) string {
	if !t.After(now) {
		return "any moment"
	}
	return Ago(t, now)
}

// Duration returns d in its largest unit, rounded down.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return "1 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	}
}

// Exact returns t to the microsecond, the precision of the stores.
func Exact(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// Time returns t as [Exact] does, or as [Ago] does.
func Time(t, now time.Time, exact bool) string {
	if exact {
		return Exact(t)
	}
	return Ago(t, now)
}
