package bench_test

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// embedded: SQLite, with steps that come together in one transaction and with
// one for each.
func embedded(l *lab) {
	grouped := sqliteSystem("sqlitestore", 0, l.TempDir)
	single := sqliteSystem("sqlitestore, one transaction per step", 1, l.TempDir)
	systems := []system{single, grouped}
	t := table{
		title: "SQLite",
		note:  "The embedded store through the engine, each commit flushed.",
		head:  []string{"clients", "system", "keys/s", "p50", "p99", "CPU"},
	}
	for _, g := range []struct {
		clients int
		goal    float64
	}{{32, 3}, {256, 9}} {
		all := l.freshFiles(g.clients, systems...)
		for _, s := range systems {
			one := all[s.name]
			t.row(strconv.Itoa(g.clients), s.name, one.of(perSecond).text(count), one.of(p50).text(micros), one.of(p99).text(micros), micros(one.of(clientMicros).mid))
		}
		l.report.find(finding{
			what: "SQLite, group commit, keys/s, " + clientsText(g.clients), beside: "one transaction per step",
			got: all[grouped.name].over(all[single.name], perSecond), goal: atLeast(g.goal),
		})
	}
	l.report.add(t)
}

// freshFiles measures new keys from a number of clients, each system each time in a new
// file.
func (l *lab) freshFiles(clients int, systems ...system) map[string]series {
	l.Helper()
	return l.interleave(namesOf(systems), func(i int) sample {
		k, err := systems[i].open(l.Context(), "")
		if err != nil {
			l.Fatal(err)
		}
		defer k.close()
		fresh := func(ctx context.Context, c *client) error {
			next := newCall(c.rng)
			return serveNew(ctx, k, &next)
		}
		if l.warm > 0 {
			if _, err := (load{clients: clients, lasts: l.warm}).drive(l.Context(), fresh); err != nil {
				l.Fatal(err)
			}
		}
		s, err := load{clients: clients, lasts: l.run}.drive(l.Context(), fresh)
		if err != nil {
			l.Fatal(err)
		}
		return s
	})
}

// sqliteSystem opens a new file each time.
func sqliteSystem(name string, maxBatch int, dir func() string) system {
	return system{name, func(ctx context.Context, _ string) (keeper, error) {
		store, err := sqlitestore.Open(ctx, filepath.Join(dir(), "keys.db"), &sqlitestore.Options{MaxBatch: maxBatch})
		if err != nil {
			return nil, err
		}
		return newEngineKeeper(store, store.Close)
	}}
}
