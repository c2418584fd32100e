package bench_test

import "fmt"

// footprint: what a key costs in the log and on disk. All systems write the same
// number of keys, because a page that is touched for the first time after a
// checkpoint is logged whole, and few keys would bear it alone.
func footprint(l *lab) {
	b := l.bed(l)
	for _, clients := range []int{32, 256} { // how full pages are depends on how many clients fill them at the same time
		l.footprintOf(b, clients)
	}
}

func (l *lab) footprintOf(b *bed, clients int) {
	systems := []system{article, bare, ours}
	slice := load{clients: clients, calls: l.keys / l.slices}
	all := l.interleave(namesOf(systems), func(i int) (sum sample) {
		o := b.occupy(systems[i])
		defer o.drop()
		b.checkpoint()
		for i := range l.slices {
			one := o.fresh(slice)
			if i > 0 { // the first is the warm-up
				sum.calls += one.calls
				sum.wal += one.wal
			}
			o.exec(o.url, "VACUUM") // as autovacuum would, but at the same point for all
		}
		sum.disk = float64(o.size(o.url)) / float64(slice.calls*l.slices)
		o.shut()
		sum.hot = o.hot(o.url)
		return sum
	})
	t := table{
		title: "Log and disk per key, " + clientsText(clients),
		note: fmt.Sprintf("%s keys by %s, a VACUUM after each tenth as autovacuum would; tables with all their indexes. Heap-only "+
			"updates are those that rewrite no index.", count(float64(l.keys)), clientsText(clients)),
		head: []string{"system", "log", "disk", "heap-only updates"},
	}
	for _, s := range systems {
		t.row(s.name, all[s.name].of(walPerCall).text(bytesText), all[s.name].of(diskPerKey).text(bytesText), percent(all[s.name].of(hotShare).mid))
	}
	l.report.add(t)
	l.report.find(finding{what: "log bytes per fresh key, " + clientsText(clients), beside: article.name, got: all[ours.name].over(all[article.name], walPerCall), goal: atMost(0.6), stretch: atMost(0.5)})
	l.report.find(finding{what: "bytes on disk per key, " + clientsText(clients), beside: article.name, got: all[ours.name].over(all[article.name], diskPerKey), goal: atMost(0.9), stretch: atMost(0.5)})
}
