package daily

import (
	"fmt"
	"time"
)

// A Day is a day of the calendar.
type Day struct {
	year  int
	month time.Month
	day   int
}

const dayLayout = "2006-01-02"

// ParseDay reads a day: 2026-03-01.
func ParseDay(text string) (Day, error) {
	t, err := time.Parse(dayLayout, text)
	if err != nil {
		return Day{}, fmt.Errorf("%q is not a day such as 2026-03-01", text)
	}
	return dayOf(t), nil
}

func dayOf(t time.Time) Day {
	y, m, d := t.Date()
	return Day{y, m, d}
}

// String returns the day as [ParseDay] reads it.
func (d Day) String() string { return d.start(time.UTC).Format(dayLayout) }

// add returns the day that is n days later.
func (d Day) add(n int) Day { return dayOf(time.Date(d.year, d.month, d.day+n, 12, 0, 0, 0, time.UTC)) }

// start returns when the day begins in a time zone. A day has 23 or 25 hours where clocks change.
func (d Day) start(zone *time.Location) time.Time {
	return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, zone)
}

// at returns the moment of the day at which clocks show this time.
func (d Day) at(clock time.Duration, zone *time.Location) time.Time {
	return time.Date(d.year, d.month, d.day, int(clock/time.Hour), int(clock%time.Hour/time.Minute), 0, 0, zone)
}
