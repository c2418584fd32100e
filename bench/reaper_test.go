package bench_test

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/janitor"
)

// reaper: what others notice while the janitor's reaper, as it comes, clears a large
// backlog of expired keys.
func reaper(l *lab) {
	const clients = 32
	b := l.bed(l)
	var without, beside, reaped series
	for range l.rounds {
		o := b.expired(&lab{TB: l.TB, scale: l.withBacklog(l.overdue), report: l.report}, false)
		kept := *o
		kept.keeper = o.keeper.(expiringKeeper).keeping
		kept.fresh(load{clients: clients, lasts: l.warm + time.Millisecond})
		without = append(without, kept.fresh(load{clients: clients, lasts: l.run}))
		fresh, gone := kept.besideReaper(load{clients: clients}, o.keeper.(expiringKeeper))
		if gone.calls < l.overdue {
			l.Fatalf("the reaper has deleted %d of %d", gone.calls, l.overdue)
		}
		beside, reaped = append(beside, fresh), append(reaped, gone)
		o.leave()
	}
	t := table{
		title: "Reaper",
		note:  "The janitor's reaper clears " + count(float64(l.overdue)) + " expired keys beside fresh ones of " + clientsText(clients) + ".",
		head:  []string{"", "forgotten keys/s", "fresh keys/s", "p50", "p99"},
	}
	t.row("no reaper", "", without.of(perSecond).text(count), without.of(p50).text(micros), without.of(p99).text(micros))
	t.row("reaper at work", reaped.of(perSecond).text(count), beside.of(perSecond).text(count), beside.of(p50).text(micros), beside.of(p99).text(micros))
	l.report.add(t)
	l.report.find(finding{
		what: "p99 of fresh keys while the reaper clears " + count(float64(l.overdue)), beside: "no reaper",
		got: beside.over(without, p99), goal: atMost(1.5),
	})
}

// besideReaper measures fresh keys for as long as the reaper has something to do.
func (o *occupied) besideReaper(l load, due expiringKeeper) (fresh, reaped sample) {
	o.t.Helper()
	l.stop = new(atomic.Bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer l.stop.Store(true)
		began := time.Now()
		n, err := janitor.NewReaper(due.engine.Store(), nil).RunOnce(o.t.Context())
		if err != nil {
			o.t.Error(err)
		}
		reaped = sample{calls: n, lasted: time.Since(began)}
	})
	fresh = o.fresh(l)
	wg.Wait()
	return fresh, reaped
}

func (s scale) withBacklog(n int) scale {
	s.backlog = n
	return s
}
