package telemetry

import (
	"time"

	"github.com/retrysafe/retrysafe/janitor"
)

// Janitor adds duties as a source: the sweepers, reapers and reconcilers that
// [janitor.Run] gets. Other duties keep no counts and are ignored.
func (m *Metrics) Janitor(duties ...janitor.Duty) (forget func()) {
	since := time.Now()
	return m.pull.watch(
		func(r reading) {
			for _, d := range duties {
				countDuty(r, d)
			}
		},
		func(r reading) {
			for _, d := range duties {
				if name, p, ok := passesOf(d); ok {
					r.add(lastSuccess, timestamp(p.Finished, since), name)
					r.add(unreadable, float64(p.Unreadable), name)
				}
				if c, ok := d.(*janitor.Reconciler); ok && c != nil {
					r.add(breakersOpen, float64(c.Stats().Open))
				}
			}
		})
}

func countDuty(r reading, d janitor.Duty) {
	name, p, ok := passesOf(d)
	if !ok {
		return
	}
	r.add(passes, float64(p.Passes), name)
	r.add(failures, float64(p.Failures), name)
	r.add(overtaken, float64(p.Overtaken), name)
	result := func(what string, n uint64) { r.add(records, float64(n), name, what) }
	switch d := d.(type) {
	case *janitor.Sweeper:
		s := d.Stats()
		result("quarantined", s.Quarantined)
		result("failed", s.Failed)
		result("released", s.Released)
		result("requeued", s.Requeued)
		result("abandoned", s.Abandoned)
	case *janitor.Reaper:
		s := d.Stats()
		r.add(ttlPruned, float64(s.Deleted))
		result("deleted", s.Deleted)
		result("expired", s.Expired)
	case *janitor.Reconciler:
		s := d.Stats()
		result("completed", s.Completed)
		result("released", s.Released)
		result("still_unknown", s.StillUnknown)
		result("dead", s.Dead)
		result("contradicted", s.Contradicted)
		r.add(questions, float64(s.Asked-s.ResolverErrors), "answered")
		r.add(questions, float64(s.ResolverErrors), "error")
		r.add(questions, float64(s.Skipped), "skipped")
	}
}

// passesOf returns the name and the passes of a sweeper, reaper or reconciler. For nil
// and for any other duty it returns false.
func passesOf(d janitor.Duty) (name string, p janitor.Passes, ok bool) {
	switch d := d.(type) {
	case *janitor.Sweeper:
		if d != nil {
			return "sweeper", d.Stats().Passes, true
		}
	case *janitor.Reaper:
		if d != nil {
			return "reaper", d.Stats().Passes, true
		}
	case *janitor.Reconciler:
		if d != nil {
			return "reconciler", d.Stats().Passes, true
		}
	}
	return "", janitor.Passes{}, false
}

// timestamp returns t in seconds since 1970, or otherwise if t is zero.
func timestamp(t, otherwise time.Time) float64 {
	if t.IsZero() {
		t = otherwise
	}
	return float64(t.UnixMilli()) / 1000
}
