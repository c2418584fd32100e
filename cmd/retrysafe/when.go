package main

import (
	"fmt"
	"time"
)

// far is beyond what anybody waits for: a deadline there is none.
const far = 50 * 365 * 24 * time.Hour

// ago returns t as people say it at now, which is the store's: "3 min ago", "in 2 h".
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	switch {
	case d < -far:
		return "never"
	case d < 0:
		return "in " + span(-d)
	case d < time.Second:
		return "just now"
	default:
		return span(d) + " ago"
	}
}

// span returns a duration in its largest unit, rounded down.
func span(d time.Duration) string {
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

// exact returns t to the microsecond, as the stores have it.
func exact(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// when returns t exactly, or as people say it.
func when(t, now time.Time, long bool) string {
	if long {
		return exact(t)
	}
	return ago(t, now)
}

// A moment is a flag: a time, or how long ago it was.
type moment struct{ time.Time }

// String implements pflag.Value.
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

// Type implements pflag.Value.
func (*moment) Type() string { return "time" }

// Set implements pflag.Value.
func (m *moment) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		m.Time = time.Now().Add(-d)
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("%q is neither a time, as 2026-03-01T03:00:00Z, nor how long ago it was, as 12h", text)
}
