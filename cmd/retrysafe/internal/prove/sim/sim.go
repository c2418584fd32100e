// Package sim runs the real engine, janitor and outbox worker in simulated worlds. In a
// world one goroutine runs all actors, as coroutines, and one seed decides everything:
// the nodes and clients, the policy, which actor runs next, what time it is, and what
// goes wrong. What a seed has shown it shows again, bit by bit.
//
// A world has one to three nodes, each with an engine, a sweeper, a reconciler, a
// reaper and, where there is work for them, workers; two to five clients that retry
// with the same key; one to three keys in two scopes; a provider; and a store over a
// memstore, behind a network. Operations run in every way that the library has, under
// every policy that it allows. At any step a request or its reply may be lost, come
// late or twice; a commit may hang; a node may crash with all that it has open, freeze
// for longer than a lease, or have its clock set, as may the store, whose server may
// crash and forget the reservations that it was allowed to; an operation may fail,
// panic or hang. Then nothing goes wrong any more, for ten minutes: each world
// lasts for at least fifteen.
//
// What is held, and how. Every write that the store applies is watched, and so is
// everything that a client is shown or an operation does:
//
//	S1   the provider's and the database's own books have one effect for a generation
//	S2   an answer never changes and has no second one before it has expired
//	S3   what a client is shown was stored before
//	S4   what is stored is what a retry gets, until it is due; it is not forgotten before
//	S5   a write meets the revision and the owner that it was made for; none repeats
//	S6   no client is shown the answer to another request, or changes its record
//	S7   no client is shown the answer of another scope
//	S8   an operation runs only under a reservation that is stored, once, and its own
//	S9   what is unknown, lapsed or not yet due moves only by its owner or on evidence
//	S10  what is deleted is final and due; retention counts from the answer
//	S11  what is sent was committed, with the same key and bytes, by a worker whose lease
//	     lasts for as long as the call may; what its receiver says is stored, also if the
//	     worker's context has ended; nothing is dropped
//	S13  records, retries and the steps of a call have a bound, and heartbeats an end
//	S14  a record of a newer version is left alone
//	L1   in the end no attempt is due that was not swept
//	L2   in the end no outcome is unknown and due without the resolver having been asked
//	L3   a call that waits on one node gets what an attempt on another leaves: the
//	     answer, or after a crash what its lapsed lease means
//
// S12, S15 and S16 are about the wire and about encryption, of which nothing is here.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// Checks returns the checks of this package.
func Checks() []prove.Check {
	return []prove.Check{{
		Name:  "sim",
		Goal:  "G2",
		Size:  prove.Size{Of: "schedules", Change: 1_000_000, Release: 50_000_000},
		Shows: "the engine, the janitor and the outbox keep their promises in every simulated world, whatever goes wrong in it",
		Holds: []string{"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S13", "S14", "L1", "L2", "L3"},
		Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
			return simulate(ctx, env, r, none)
		},
	}}
}

const (
	// batch is how many seeds a worker takes at once.
	batch = 250
	// mostExplained is how many breaches are made short, which takes a while.
	mostExplained = 3
	replays       = 2000
	// mostHashes is how many schedules are compared with each other; of more it is
	// a part, which says the same of all.
	mostHashes = 4_000_000
	year       = 365 * 24 * time.Hour
)

// A campaign is one run of the check.
type campaign struct {
	env       *prove.Env
	r         *prove.Result
	n         int
	every     uint64 // of which schedules the hash is kept
	next      atomic.Int64
	explained atomic.Int32

	mu     sync.Mutex
	hashes []uint64
	done   int
	counts [events]uint64
	steps  int
	lasted float64 // years
}

// simulate runs worlds, with a fault planted in each if the campaign is to find it.
func simulate(ctx context.Context, env *prove.Env, r *prove.Result, p plant) error {
	c := &campaign{env: env, r: r, n: env.Times()}
	c.every = uint64(c.n/mostHashes + 1)
	// What is alive is small, so the collector would come a thousand times a second.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	workers := env.Workers()
	began := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { c.work(ctx, p) })
	}
	wg.Wait()
	c.report(time.Since(began).Seconds() * float64(workers))
	if c.done < c.n {
		return fmt.Errorf("only %d of %d schedules were run: %w", c.done, c.n, cmp.Or(ctx.Err(), context.Canceled))
	}
	return nil
}

// work runs schedules until there are none left.
func (c *campaign) work(ctx context.Context, p plant) {
	w := &world{plant: p}
	defer w.close()
	var hashes []uint64
	done, steps, lasted := 0, 0, time.Duration(0)
	years := 0.0
	for ctx.Err() == nil {
		first := int(c.next.Add(batch)) - batch
		if first >= c.n {
			break
		}
		last := min(first+batch, c.n)
		for i := first; i < last; i++ {
			seed := c.env.Seed + uint64(i)
			w.from(seed)
			if w.hash%c.every == 0 {
				hashes = append(hashes, w.hash)
			}
			done++
			steps += w.steps
			lasted += w.now
			if w.broken != nil {
				c.broken(w, seed)
			}
		}
		years += lasted.Seconds() / year.Seconds()
		lasted = 0
		c.env.Step(last, c.n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hashes = append(c.hashes, hashes...)
	c.done += done
	c.steps += steps
	c.lasted += years
	for e := range w.counts {
		c.counts[e] += w.counts[e]
	}
}

// broken reports what a seed has broken.
func (c *campaign) broken(w *world, seed uint64) {
	b, counts := *w.broken, w.counts
	v := prove.Violation{Invariant: b.invariant, Key: b.key, What: b.what, Seed: seed}
	if c.explained.Add(1) <= mostExplained {
		v.Trace = w.explain(seed, replays)
		w.counts = counts
	}
	c.r.Violate(v)
}

// report says what was done, in so many seconds of one core.
func (c *campaign) report(seconds float64) {
	kept := len(c.hashes)
	slices.Sort(c.hashes)
	distinct := len(slices.Compact(c.hashes))
	c.r.Count("schedules", c.done)
	if kept > 0 {
		c.r.Count("distinct", c.done-(kept-distinct)*int(c.every))
	}
	c.r.Count("steps", c.steps)
	c.r.Measure("virtual time", c.lasted, "years")
	c.r.Measure("speed", float64(c.done)/seconds, "schedules/s per core")
	for e := range events {
		if n := c.counts[e]; n > 0 {
			c.r.Count(e.name(), int(n))
		}
	}
}
