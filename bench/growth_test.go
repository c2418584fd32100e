package bench_test

// growth: fresh keys in a table that holds many already, beside an empty one. The
// many were written through the store itself.
func growth(l *lab) {
	const clients = 32
	b := l.bed(l)
	grown := b.occupy(ours)
	defer grown.leave()
	grown.fresh(load{clients: l.crowd, calls: l.existing})
	grown.settled()

	empty, full := "empty", count(float64(l.existing))+" keys"
	all := l.interleave([]string{empty, full}, func(i int) sample {
		o := grown
		if i == 0 {
			o = b.occupy(ours)
			defer o.leave()
		}
		b.checkpoint()
		if l.warm > 0 {
			o.fresh(load{clients: clients, lasts: l.warm})
		}
		return o.fresh(load{clients: clients, lasts: l.run})
	})
	t := table{
		title: "A table that has grown",
		note:  "Fresh keys again, at first after VACUUM (FREEZE, ANALYZE) and CHECKPOINT.",
		head:  append([]string{"table"}, loadHead[2:]...),
	}
	for _, name := range []string{empty, full} {
		t.loadRow(0, name, all[name])
		t.rows[len(t.rows)-1] = t.rows[len(t.rows)-1][1:]
	}
	l.report.add(t)
	l.report.find(finding{
		what: "fresh keys/s with " + full + ", " + clientsText(clients), beside: "an empty table",
		got: all[full].over(all[empty], perSecond), goal: atLeast(0.9),
	})
}
