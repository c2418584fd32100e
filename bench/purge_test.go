package bench_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A purger is a keeper whose keys are due as soon as they are completed.
type purger interface {
	keeper
	purge(ctx context.Context) (int, error)
}

const (
	// purgeBatch is how many keys one step forgets at most.
	purgeBatch = 1000
	// purgePause makes a purge about as fast as keys arrive, at 20,000 a second.
	purgePause = 50 * time.Millisecond
)

// A purgeMode is how keys are forgotten while others are written.
type purgeMode struct {
	name  string
	purge bool
	pause time.Duration
}

var purgeModes = []purgeMode{
	{"no purge", false, 0},
	{"purge at the pace of arrival", true, purgePause},
	{"purge without a pause", true, 0},
}

// expiry: how fast completed, expired keys are forgotten when nothing else is to
// do, and what the others notice of it.
func expiry(l *lab) {
	const clients = 32
	b := l.bed(l)
	alone := l.interleave([]string{article.name, ours.name}, func(i int) sample {
		o := b.expired(l, i == 0)
		defer o.leave()
		return o.purgeAll(l.backlog)
	})
	beside, forgotten := map[string]series{}, map[string]series{}
	for range l.rounds { // one backlog is enough for a round
		o := b.expired(l, false)
		for _, m := range purgeModes {
			fresh, purged := o.freshBesidePurge(load{clients: clients, lasts: l.run / 2}, m)
			beside[m.name], forgotten[m.name] = append(beside[m.name], fresh), append(forgotten[m.name], purged)
		}
		o.leave()
	}
	t := table{
		title: "Expiry",
		note: "Expired keys are deleted, thousands at a time: alone, and beside fresh keys of " + clientsText(clients) +
			". The article's reaper is as printed.",
		head: []string{"", "forgotten keys/s", "fresh keys/s", "p50", "p99"},
	}
	for _, name := range []string{article.name, ours.name} {
		t.row(name+", alone", alone[name].of(perSecond).text(count), "", "", "")
	}
	for _, m := range purgeModes {
		rate, s := "", beside[m.name]
		if m.purge {
			rate = forgotten[m.name].of(perSecond).text(count)
		}
		t.row(ours.name+", "+m.name, rate, s.of(perSecond).text(count), s.of(p50).text(micros), s.of(p99).text(micros))
	}
	l.report.add(t)
	l.report.find(finding{
		what: "purge of expired keys alone, keys/s", beside: "–", got: alone[ours.name].of(perSecond),
		format: count, goal: atLeast(100_000), stretch: limit{said: "O(1)"},
	})
	for _, m := range purgeModes[1:] {
		l.report.find(finding{
			what: "p99 of fresh keys, " + m.name, beside: purgeModes[0].name,
			got: beside[m.name].over(beside[purgeModes[0].name], p99), goal: atMost(1.5),
		})
	}
}

// freshBesidePurge measures fresh keys, which are kept, while expired ones are
// forgotten. It ends early if there are no more of those.
func (o *occupied) freshBesidePurge(l load, m purgeMode) (fresh, purged sample) {
	o.t.Helper()
	l.stop = new(atomic.Bool)
	var wg sync.WaitGroup
	if m.purge {
		wg.Go(func() {
			purged = o.purgeUntil(l.stop, m.pause)
			l.stop.Store(true)
		})
	}
	kept := *o
	kept.keeper = o.keeper.(expiringKeeper).keeping
	fresh = kept.fresh(l)
	l.stop.Store(true)
	wg.Wait()
	return fresh, purged
}

// expired returns a database full of keys that are completed and due.
func (b *bed) expired(l *lab, ofArticle bool) *occupied {
	b.t.Helper()
	if ofArticle {
		o := b.occupy(article)
		o.exec(o.url, articleBacklog(l.backlog))
		o.settled()
		return o
	}
	o := b.occupy(oursExpiring)
	o.fresh(load{clients: l.crowd, calls: l.backlog})
	o.settled()
	time.Sleep(expiringLease + 1200*time.Millisecond) // what is due is filed by whole seconds
	return o
}

// purgeAll forgets all that is due.
func (o *occupied) purgeAll(backlog int) (s sample) {
	o.t.Helper()
	began := time.Now()
	for s.calls < backlog {
		n, err := o.keeper.(purger).purge(o.t.Context())
		if err != nil {
			o.t.Fatal(err)
		}
		if n == 0 {
			o.t.Fatalf("only %d of %d expired keys were forgotten", s.calls, backlog)
		}
		s.calls += n
	}
	s.lasted = time.Since(began)
	return s
}

// purgeUntil forgets what is due until it is told to stop or there is no more.
func (o *occupied) purgeUntil(stop *atomic.Bool, pause time.Duration) (s sample) {
	began := time.Now()
	for !stop.Load() {
		n, err := o.keeper.(purger).purge(o.t.Context())
		if err != nil {
			o.t.Error(err)
		}
		if err != nil || n == 0 {
			break
		}
		s.calls += n
		time.Sleep(pause)
	}
	s.lasted = time.Since(began)
	return s
}
