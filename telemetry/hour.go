package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Minute is what the calls of one minute came to, and how the attempts ended that
// ended in it. An attempt that was quarantined and answered later counts in both minutes.
type Minute struct {
	// At is when the minute began, in UTC.
	At time.Time
	// Ran counts attempts whose answer is durable.
	Ran int64
	// Replayed counts calls that got a stored answer.
	Replayed int64
	// Refused counts calls that got neither: the key is in flight, has an unknown outcome,
	// belongs to a different request, has expired, or its record cannot be read.
	Refused int64
	// Unknown counts attempts whose outcome became unknown.
	Unknown int64
	// Failed counts attempts that ended without an answer of their own, and not unknown:
	// they were proven not to have happened, or their lease ran out where that is an end.
	Failed int64
}

// minutes is how many minutes LastHour returns, the present one included.
const minutes = 60

// LastHour returns the outcomes that this process has observed in the last hour, one
// entry for each minute, the oldest first. The last of the 60 is the minute that has
// begun. It reads memory only, and costs no scrape.
func (m *Metrics) LastHour() []Minute { return m.events.hour.read(time.Now()) }

// PreventedToday returns how many duplicates this process has prevented since midnight
// UTC, or since it began. A duplicate is prevented when a call comes under a key that was
// seen before with the same request, and its operation does not run again: the call gets
// the stored answer, or is refused because the operation runs, because its outcome is
// unknown, or because the key has expired.
func (m *Metrics) PreventedToday() int64 { return m.events.prevented.read(time.Now()) }

// ContradictedToday returns how often evidence has contradicted a record since midnight
// UTC, in this process.
func (m *Metrics) ContradictedToday() int64 { return m.events.contradicted.read(time.Now()) }

// LostToday returns how many owners have found their record taken since midnight UTC, in
// this process.
func (m *Metrics) LostToday() int64 { return m.events.lost.read(time.Now()) }

// An outcome is the field of a Minute that an event adds to.
type outcome uint8

const (
	noOutcome outcome = iota
	outcomeRan
	outcomeReplayed
	outcomeRefused
	outcomeUnknown
	outcomeFailed
	// outcomeByState is outcomeUnknown if the record is unknown after the event, and
	// otherwise outcomeFailed.
	outcomeByState
)

// of returns the outcome of an event.
func (o outcome) of(ev *retrysafe.Event) outcome {
	switch {
	case o != outcomeByState:
		return o
	case ev.State == retrysafe.StateUnknown:
		return outcomeUnknown
	default:
		return outcomeFailed
	}
}

// An hour counts outcomes by minute. A minute's counters are used again an hour later.
type hour struct {
	mu   sync.Mutex // held while counters are set to zero for a new minute
	ring [minutes]struct {
		minute atomic.Int64 // since 1970
		counts [outcomeByState]atomic.Int64
	}
}

// add counts one outcome. An event whose counters are being set to zero for the next hour
// while it is counted may be counted in that minute.
func (h *hour) add(now time.Time, o outcome) {
	minute := now.Unix() / 60
	at := &h.ring[minute%minutes]
	if at.minute.Load() != minute {
		h.mu.Lock()
		if at.minute.Load() != minute {
			for i := range at.counts {
				at.counts[i].Store(0)
			}
			at.minute.Store(minute)
		}
		h.mu.Unlock()
	}
	at.counts[o].Add(1)
}

func (h *hour) read(now time.Time) []Minute {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]Minute, minutes)
	last := now.Unix() / 60
	for i := range all {
		minute := last - minutes + 1 + int64(i)
		all[i].At = time.Unix(minute*60, 0).UTC()
		if at := &h.ring[minute%minutes]; at.minute.Load() == minute {
			all[i].Ran, all[i].Replayed = at.counts[outcomeRan].Load(), at.counts[outcomeReplayed].Load()
			all[i].Refused = at.counts[outcomeRefused].Load()
			all[i].Unknown, all[i].Failed = at.counts[outcomeUnknown].Load(), at.counts[outcomeFailed].Load()
		}
	}
	return all
}

// A today counts since midnight UTC.
type today struct {
	mu  sync.Mutex   // held while the count is set to zero for a new day
	day atomic.Int64 // since 1970
	n   atomic.Int64
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

func (d *today) add(now time.Time) {
	day := dayOf(now)
	if d.day.Load() != day {
		d.mu.Lock()
		if d.day.Load() != day {
			d.n.Store(0)
			d.day.Store(day)
		}
		d.mu.Unlock()
	}
	d.n.Add(1)
}

func (d *today) read(now time.Time) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.day.Load() != dayOf(now) {
		return 0
	}
	return d.n.Load()
}
