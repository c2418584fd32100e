package bench_test

import "fmt"

// replays: keys that were completed some time ago are sent again.
func replays(l *lab) {
	const clients = 32
	systems := []system{article, ours, oursCached}
	all := l.replayEach(l.bed(l), clients, systems...)
	t := table{
		title: "Replays",
		note:  fmt.Sprintf("%s completed keys, after a VACUUM, in random order.", count(float64(l.stock))),
		head:  loadHead,
	}
	for _, s := range systems {
		t.loadRow(clients, s.name, all[s.name])
	}
	l.report.add(t)
	what := "replays/s, " + clientsText(clients)
	l.report.find(finding{what: what + ", from PostgreSQL", beside: article.name, got: all[ours.name].over(all[article.name], perSecond), goal: atLeast(4), stretch: atLeast(6)})
	l.report.find(finding{what: what + ", from the cache", beside: article.name, got: all[oursCached.name].over(all[article.name], perSecond), goal: atLeast(30), stretch: atLeast(45)})
	l.report.find(finding{
		what: "log bytes per replay", beside: "–", got: all[ours.name].of(walPerCall),
		format: func(v float64) string { return fmt.Sprintf("%.2f B", v) }, goal: atMost(0.5).as("0, noise apart"),
	})
}
