package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
)

const (
	// children is how many clients are processes of their own.
	children = 3
	// A client is killed every so many steps, another one cut off.
	killEvery, cutEvery = 4_999, 2_503
)

func runLinear(ctx context.Context, env *prove.Env, r *prove.Result) error {
	db, err := sandbox.Open(ctx, env.Store)
	if err != nil {
		return err
	}
	steps, err := runClients(ctx, env, r, db.TxStore())
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	began := time.Now()
	err = judge(ctx, steps, r, skewOf(env.Store))
	r.Measure("judged in", time.Since(began).Seconds(), "s")
	return err
}

// runClients lets the clients do their steps, and disturbs them. One of them is this very
// process, so that something goes on while others are killed.
func runClients(ctx context.Context, env *prove.Env, r *prove.Result, store retrysafe.TxStore[sandbox.AddEffect]) (steps []*step, err error) {
	if err := empty(ctx, store, scope); err != nil {
		return nil, err
	}
	f := &processes{store: env.Store, seed: env.Seed}
	f.next.Store(workers)
	f.turn.Store(1)
	own := newClient(store, nil, env.Seed, 0)
	own.turn.Store(1)
	events := make(chan int, 1024)
	g := newSharedJournal(env.Times(), func(n int) {
		select {
		case events <- n:
		default: // they come one by one, and the next will do
		}
	})
	own.log, f.log = g, g
	if err := f.startAll(ctx); err != nil {
		return nil, errors.Join(err, f.stopAll())
	}

	var alone sync.WaitGroup
	var failed error
	alone.Go(func() { failed = own.work(ctx) })
	disturb(ctx, env, r, f, own, g.of, events)
	own.stop.Store(true)
	err = f.stopAll()
	alone.Wait()
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if err := last(context.WithoutCancel(ctx), own, f.turn.Load()); err != nil {
		return nil, err
	}
	steps = g.all()
	count(steps, r)
	return steps, nil
}

// empty makes sure that a scope is unused: records from before would look like writes
// that no step did.
func empty(ctx context.Context, s retrysafe.Store, scope string) error {
	found, err := s.List(ctx, retrysafe.Query{Scope: scope, Limit: 1})
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("the store has keys of %q already; it must be empty", scope)
	}
	return err
}

// startAll starts the clients.
func (f *processes) startAll(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range children {
		proxy, by, err := proxied(f.store)
		if err != nil {
			return err
		}
		s := &process{store: by, proxy: proxy}
		if err := f.start(ctx, s); err != nil {
			return err
		}
		f.all = append(f.all, s)
	}
	return nil
}

// disturb passes the turn on, kills and cuts until all steps are done, or time is up.
func disturb(ctx context.Context, env *prove.Env, r *prove.Result, f *processes, own *client, of int, events <-chan int) {
	if env.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, env.For)
		defer cancel()
	}
	chance := rand.New(rand.NewPCG(env.Seed, 0))
	kills, cuts := 0, 0
	for n := 0; n < of && !own.stop.Load(); {
		select {
		case n = <-events:
		case <-ctx.Done():
			return
		}
		if turn := uint32(1 + n/turnSteps); turn > f.turn.Load() {
			own.turn.Store(turn)
			f.setTurn(turn)
			env.Step(n, of)
		}
		if n/killEvery > kills {
			kills++
			if f.kill(chance.IntN(children)) {
				r.Count("clients killed", 1)
			}
		}
		if n/cutEvery > cuts {
			cuts++
			if f.cut(chance.IntN(children), []netfault.Fault{netfault.Cut, netfault.Reset}[chance.IntN(2)]) {
				r.Count("connections cut", 1)
			}
		}
	}
}

// last reads every key once more, so that what was confirmed last is seen too.
func last(ctx context.Context, c *client, turn uint32) error {
	var all sync.WaitGroup
	errs := make([]error, workers)
	c.stop.Store(false)
	keys := (turn + 1) * turnKeys
	for n := range uint32(workers) {
		w := &worker{client: c, number: n}
		all.Go(func() {
			for key := turnKeys + n; key < keys && errs[n] == nil; key += workers {
				errs[n] = w.do(&step{frame: frame{Key: key, Do: load}}, func(s *step) { w.act(ctx, s) })
			}
			errs[n] = errors.Join(errs[n], w.tell())
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// count says what there was to judge.
func count(steps []*step, r *prove.Result) {
	did := map[operation]int{}
	doubts, commits := 0, 0
	for _, s := range steps {
		did[s.Do]++
		switch {
		case s.End == unclear || s.End == open:
			doubts++
		case s.How != alone && s.Do != load && s.End == done:
			commits++
		}
	}
	r.Count("steps", len(steps))
	r.Count("creates", did[create])
	r.Count("swaps", did[swap])
	r.Count("loads", did[load])
	r.Count("purges", did[purge])
	r.Count("commits", commits)
	r.Count("steps without an answer", doubts)
}
