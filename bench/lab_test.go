package bench_test

import (
	"context"
	"testing"
	"time"
)

// A lab is where scenarios are measured.
type lab struct {
	testing.TB
	scale
	report *report
	// Each starts a server: slowBed one with a disk slow to flush, standbyBed one whose commits
	// wait for a second server, farBed one with a network slow to pass.
	bed, slowBed, standbyBed func(testing.TB) *bed
	farBed                   func(*lab) *bed
}

// A scale says how much is measured.
type scale struct {
	rounds   int
	again    int           // how often a run is repeated at most, if the host disturbs it
	warm     time.Duration // before each run, not measured
	run      time.Duration
	keys     int           // that are written to measure the log and the disk
	stock    int           // of keys that are replayed
	existing int           // keys in the table that has grown
	backlog  int           // of expired keys
	overdue  int           // expired keys that the reaper finds
	slices   int           // into which keys are divided, with a VACUUM behind each
	crowd    int           // clients that fill a table
	messages int           // in an outbox that is drained
	stream   time.Duration // for how long messages are produced and delivered
	// connections are those of a crowd at the gateway.
	connections int
	requests    int // through a middleware, in one run of the regression guard
}

var (
	full  = scale{rounds: 3, again: 4, warm: 500 * time.Millisecond, run: 4 * time.Second, keys: 40_000, stock: 20_000, existing: 5_000_000, backlog: 200_000, overdue: 1_000_000, slices: 10, crowd: 256, messages: 100_000, stream: 30 * time.Second, connections: 1000}
	quick = scale{rounds: 3, again: 4, warm: 200 * time.Millisecond, run: time.Second, keys: 10_000, stock: 10_000, existing: 200_000, backlog: 50_000, overdue: 100_000, slices: 10, crowd: 256, messages: 30_000, stream: 5 * time.Second, connections: 1000}
	smoke = scale{rounds: 1, run: 10 * time.Millisecond, keys: 64, stock: 64, existing: 64, backlog: 64, overdue: 64, slices: 2, crowd: 8, messages: 100, stream: 50 * time.Millisecond, connections: 50, requests: 100}
)

// An occupied bed is a database with one system open on it.
type occupied struct {
	*bed
	keeper
	url  string
	drop func()
}

// occupy opens a system on an empty database.
func (b *bed) occupy(s system) *occupied {
	b.t.Helper()
	url, drop := b.create()
	k, err := s.open(b.t.Context(), url)
	if err != nil {
		b.t.Fatalf("open %s: %v", s.name, err)
	}
	return &occupied{b, k, url, drop}
}

// leave closes the system and forgets the database.
func (o *occupied) leave() {
	o.t.Helper()
	o.shut()
	o.drop()
}

// shut closes the system.
func (o *occupied) shut() {
	o.t.Helper()
	if err := o.keeper.close(); err != nil {
		o.t.Fatal(err)
	}
}

// fresh measures new keys.
func (o *occupied) fresh(l load) sample {
	o.t.Helper()
	return o.measure(l, func(ctx context.Context, c *client) error {
		next := newCall(c.rng)
		return serveNew(ctx, o.keeper, &next)
	})
}

// lay writes n new keys and returns their calls.
func (o *occupied) lay(n, clients int) []call {
	o.t.Helper()
	stock := make([]call, n)
	o.measure(load{clients: clients, calls: n}, func(ctx context.Context, c *client) error {
		next := newCall(c.rng)
		stock[c.next()] = next
		return serveNew(ctx, o.keeper, &next)
	})
	return stock
}

// replay measures keys that are known, in random order.
func (o *occupied) replay(l load, stock []call) sample {
	o.t.Helper()
	return o.measure(l, func(ctx context.Context, c *client) error {
		return serveAgain(ctx, o.keeper, &stock[c.rng.IntN(len(stock))])
	})
}

// settled is the state in which a database is found some time after the last
// write: vacuumed, all pages written.
func (o *occupied) settled() {
	o.t.Helper()
	o.exec(o.url, "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT")
}

// interleave measures systems in turns, so that what else the machine does hits
// all alike, and each round begins with another, so that none always follows the
// same. It returns their series by name.
func (l *lab) interleave(names []string, measure func(i int) sample) map[string]series {
	l.Helper()
	all := map[string]series{}
	for round := range l.rounds {
		for turn := range names {
			i := (round + turn) % len(names)
			all[names[i]] = append(all[names[i]], l.undisturbed(func() sample { return measure(i) }))
		}
	}
	return all
}

// freshEach measures new keys from a number of clients, each system each time in
// an empty database.
func (l *lab) freshEach(b *bed, clients int, systems ...system) map[string]series {
	l.Helper()
	return l.interleave(namesOf(systems), func(i int) sample {
		o := b.occupy(systems[i])
		defer o.leave()
		b.checkpoint()
		if l.warm > 0 {
			o.fresh(load{clients: clients, lasts: l.warm})
		}
		return o.fresh(load{clients: clients, lasts: l.run})
	})
}

// replayEach measures keys that were completed some time ago, of each system in a database
// of its own.
func (l *lab) replayEach(b *bed, clients int, systems ...system) map[string]series {
	l.Helper()
	var open []*occupied
	var stocks [][]call
	for _, s := range systems {
		o := b.occupy(s)
		defer o.leave()
		open, stocks = append(open, o), append(stocks, o.lay(l.stock, l.crowd))
		o.settled()
	}
	return l.interleave(namesOf(systems), func(i int) sample {
		b.checkpoint()
		open[i].replay(load{clients: clients, calls: l.stock}, stocks[i]) // fills caches
		return open[i].replay(load{clients: clients, lasts: l.run}, stocks[i])
	})
}

func namesOf(systems []system) (names []string) {
	for _, s := range systems {
		names = append(names, s.name)
	}
	return names
}
