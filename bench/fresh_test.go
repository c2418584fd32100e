package bench_test

import (
	"fmt"
	"strconv"
)

var loadHead = []string{"clients", "system", "keys/s", "p50", "p99", "CPU client", "CPU server", "log"}

// loadRow is one system under one load; what is not a rate or a time is per key.
func (t *table) loadRow(clients int, name string, s series) {
	t.row(strconv.Itoa(clients), name, s.of(perSecond).text(count), s.of(p50).text(micros), s.of(p99).text(micros),
		micros(s.of(clientMicros).mid), micros(s.of(serverMicros).mid), bytesText(s.of(walPerCall).mid))
}

func clientsText(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

// freshKeys: each call is a new operation, reserved and then completed.
func freshKeys(l *lab) {
	b := l.bed(l)
	systems := []system{article, bare, ours, oursCached}
	t := table{
		title: "Fresh keys",
		note:  "Each call is a new operation: reserved, run and completed, both steps durable. An empty table for each run.",
		head:  loadHead,
	}
	for _, g := range []struct {
		clients              int
		article, articleMore float64
		bare, bareMore       float64
		p99, p99Less         float64
	}{
		{clients: 1, article: 1.1, articleMore: 1.3},
		{clients: 8, article: 1.5, articleMore: 2.5},
		{clients: 32, article: 2.5, articleMore: 4, bare: 1.5, bareMore: 2, p99: 0.4, p99Less: 0.22},
		{clients: 256, article: 6, articleMore: 10, bare: 3.5, bareMore: 5, p99: 0.15, p99Less: 0.06},
	} {
		all := l.freshEach(b, g.clients, systems...)
		group := bars{g.clients, map[string]spread{}}
		for _, s := range systems {
			t.loadRow(g.clients, s.name, all[s.name])
			group.rates[s.name] = all[s.name].of(perSecond)
		}
		l.report.bars = append(l.report.bars, group)

		rate, late := "fresh keys/s, "+clientsText(g.clients), "p99 of fresh keys, "+clientsText(g.clients)
		l.report.find(finding{what: rate, beside: article.name, got: all[ours.name].over(all[article.name], perSecond), goal: atLeast(g.article), stretch: atLeast(g.articleMore)})
		beside := finding{what: rate, beside: bare.name, got: all[ours.name].over(all[bare.name], perSecond)}
		if g.bare > 0 {
			beside.goal, beside.stretch = atLeast(g.bare), atLeast(g.bareMore)
		}
		l.report.find(beside)
		if g.p99 > 0 {
			l.report.find(finding{what: late, beside: article.name, got: all[ours.name].over(all[article.name], p99), goal: atMost(g.p99), stretch: atMost(g.p99Less)})
		}
	}
	l.report.add(t)
}

// slowDisk: what is left when a flush takes a millisecond longer. There the
// reservation that is not waited for is what gains.
func slowDisk(l *lab) {
	b := l.slowBed(l)
	t := table{
		title: "Fresh keys on a slow disk",
		note: "The same with fdatasync and fsync slowed by a millisecond. The asynchronous reservation is an option of a route: " +
			"the completion is waited for and makes the reservation durable with it.",
		head: loadHead,
	}
	for _, g := range []struct {
		clients int
		systems []system
		bare    float64
	}{
		{8, []system{bare, ours}, 1},
		{32, []system{article, bare, ours, oursAsync}, 1},
		{256, []system{bare, ours}, 3},
	} {
		all := l.freshEach(b, g.clients, g.systems...)
		for _, s := range g.systems {
			t.loadRow(g.clients, s.name, all[s.name])
		}
		l.report.find(finding{
			what: "slow disk, keys/s, " + clientsText(g.clients), beside: bare.name,
			got: all[ours.name].over(all[bare.name], perSecond), goal: atLeast(g.bare),
		})
		if _, measured := all[oursAsync.name]; measured {
			l.report.find(finding{
				what: "slow disk, asynchronous reserve, keys/s, " + clientsText(g.clients), beside: article.name,
				got: all[oursAsync.name].over(all[article.name], perSecond), goal: atLeast(2),
			})
		}
	}
	l.report.add(t)
}

// standby: what is left when every commit waits for a second server.
func standby(l *lab) {
	l.besideBare(l.standbyBed(l), "synchronous standby", table{
		title: "Fresh keys with a synchronous standby",
		note:  "The same with a standby that every commit waits for, and that takes a millisecond to flush.",
	})
}

// farAway: what is left when the server is a millisecond away and back.
func farAway(l *lab) {
	l.besideBare(l.farBed(l), "database far away", table{
		title: "Fresh keys in a database far away",
		note:  "The same with half a millisecond of network each way.",
	})
}

// besideBare measures fresh keys of few and of many clients beside the bare loop.
func (l *lab) besideBare(b *bed, what string, t table) {
	t.head = loadHead
	for _, g := range []struct {
		clients int
		bare    float64
	}{{8, 1}, {32, 1}, {256, 3}} {
		all := l.freshEach(b, g.clients, bare, ours)
		for _, s := range []system{bare, ours} {
			t.loadRow(g.clients, s.name, all[s.name])
		}
		l.report.find(finding{
			what: what + ", keys/s, " + clientsText(g.clients), beside: bare.name,
			got: all[ours.name].over(all[bare.name], perSecond), goal: atLeast(g.bare),
		})
	}
	l.report.add(t)
}
