package retrysafe_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The engine blocks only in its store, its clock and its randomness. So one
// goroutine can run any number of callers, as coroutines, in an order that a
// seed decides: every step of the store may be delayed, lost before or after it
// was applied, or be the last thing that its caller ever did.

var schedules = flag.Uint64("schedules", 500, "how many simulated schedules to run under each policy")

// world is a simulation: virtual time, and actors of which one runs at a time.
type world struct {
	rng    *rand.Rand
	now    time.Time
	actors []*actor
	at     *actor // who runs
}

// actor is a coroutine that sleeps until a virtual moment.
type actor struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	wake  time.Time
	dead  bool // crashed, or its timer was stopped
	over  bool
}

// errCrashed unwinds a coroutine that crashed when its world ends.
var errCrashed = errors.New("crashed")

func (w *world) spawn(after time.Duration, do func()) *actor {
	a := &actor{wake: w.now.Add(after)}
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if p := recover(); p != nil && p != any(errCrashed) {
				panic(p)
			}
		}()
		do()
	})
	w.actors = append(w.actors, a)
	return a
}

// pause gives way to others for d.
func (w *world) pause(d time.Duration) {
	a := w.at
	if a.dead {
		panic(errCrashed)
	}
	a.wake = w.now.Add(d)
	if !a.yield(struct{}{}) || a.dead {
		a.dead = true
		panic(errCrashed)
	}
}

// run lets actors run until none is left or until is reached.
func (w *world) run(until time.Duration) {
	end := w.now.Add(until)
	for {
		var ready []*actor
		var soonest *actor
		for _, a := range w.actors {
			switch {
			case a.dead || a.over:
			case !a.wake.After(w.now):
				ready = append(ready, a)
			case soonest == nil || a.wake.Before(soonest.wake):
				soonest = a
			}
		}
		if len(ready) == 0 {
			if soonest == nil || soonest.wake.After(end) {
				return
			}
			w.now = soonest.wake
			continue
		}
		w.at = ready[w.rng.IntN(len(ready))]
		if _, more := w.at.next(); !more {
			w.at.over = true
		}
	}
}

// finish unwinds what is left.
func (w *world) finish() {
	for _, a := range w.actors {
		w.at, a.dead = a, true
		if a.yield != nil {
			a.stop()
		}
	}
}

// The world is the engine's clock.

func (w *world) Now() time.Time { return w.now }

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	w.pause(d)
	return ctx.Err()
}

func (w *world) AfterFunc(d time.Duration, f func()) retrysafe.Timer {
	return (*simTimer)(w.spawn(d, f))
}

type simTimer actor

func (t *simTimer) Stop() bool {
	pending := t.yield == nil && !t.dead
	if pending {
		t.dead = true
	}
	return pending
}

// simStore is a store on an unreliable network, with a clock of its own.
type simStore struct {
	*memstore.Store
	w               *world
	lost, late, die int // chances in 1,000 for each step
}

// step does one step of the store as fate wills.
func simStep[T any](s *simStore, do func() (T, error)) (got T, err error) {
	rng := s.w.rng
	s.w.pause(time.Duration(rng.IntN(2000)) * time.Microsecond)
	if rng.IntN(1000) < s.late {
		s.w.pause(time.Duration(rng.IntN(90)) * time.Second) // a pause longer than any lease
	}
	s.maybeDie()
	if rng.IntN(1000) < s.lost {
		return got, errors.New("request lost")
	}
	got, err = do()
	s.maybeDie()
	if rng.IntN(1000) < s.lost {
		var none T
		return none, errors.New("reply lost")
	}
	s.w.pause(time.Duration(rng.IntN(2000)) * time.Microsecond)
	return got, err
}

// maybeDie ends the actor that runs, for ever.
func (s *simStore) maybeDie() {
	if s.w.rng.IntN(1000) < s.die {
		s.w.at.dead = true
		s.w.pause(0)
	}
}

func (s *simStore) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return simStep(s, func() (retrysafe.Record, error) { return s.Store.Create(context.WithoutCancel(ctx), r) })
}

func (s *simStore) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return simStep(s, func() (retrysafe.Record, error) { return s.Store.Swap(context.WithoutCancel(ctx), r) })
}

func (s *simStore) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return simStep(s, func() (retrysafe.Record, error) { return s.Store.Load(context.WithoutCancel(ctx), ref) })
}

// simulate runs one schedule of several callers under one key and returns what
// was broken, if anything.
func simulate(seed uint64, p retrysafe.Policy) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{rng: rng, now: time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)}
	defer w.finish()
	skew := time.Duration(rng.IntN(7200)-3600) * time.Second
	mem := memstore.New(&memstore.Options{Now: func() time.Time { return w.now.Add(skew) }})
	store := &simStore{Store: mem, w: w, lost: rng.IntN(100), late: rng.IntN(50), die: rng.IntN(40)}
	nodes := make([]*retrysafe.Engine, 2)
	for i := range nodes {
		e, err := retrysafe.New(store, &retrysafe.Options{Policy: p, Clock: w, Rand: seeded{rng}})
		if err != nil {
			return err
		}
		nodes[i] = e
	}

	effects := map[string]int{} // by downstream key, as the provider sees them
	calls := 0
	var shown []string
	for i := range 4 {
		w.spawn(time.Duration(rng.IntN(40))*time.Second, func() {
			for range 6 { // a client that retries
				node := nodes[rng.IntN(len(nodes))]
				x, out, _ := node.Begin(context.Background(), call())
				switch {
				case out != nil:
					shown = append(shown, string(out.Body))
					return
				case x != nil:
					if rng.IntN(4) > 0 {
						w.pause(time.Duration(rng.IntN(45)) * time.Second)
					}
					calls++
					effects[x.DownstreamKey("charge")]++
					w.pause(time.Duration(rng.IntN(1000)) * time.Millisecond)
					body := "charged"
					if p.Effects == retrysafe.Unprotected {
						body = fmt.Sprint("charged by ", i) // an answer made on the spot
					}
					if x.Complete(context.Background(), answer(body)) == nil {
						shown = append(shown, body)
						return
					}
				}
				w.pause(time.Duration(1+rng.IntN(20)) * time.Second)
			}
		})
	}
	w.run(time.Hour)

	if p.Effects == retrysafe.Unprotected && calls > 1 {
		return fmt.Errorf("S1: %d unprotected effects", calls)
	}
	if len(effects) > 1 {
		return fmt.Errorf("S1: %d keys at the provider", len(effects))
	}
	for _, s := range shown {
		if s != shown[0] {
			return fmt.Errorf("S2: clients were shown %q", shown)
		}
	}
	if len(shown) > 0 {
		r, err := mem.Load(context.Background(), ref)
		if err != nil || r.State != retrysafe.Completed || string(r.Result.Body) != shown[0] {
			return fmt.Errorf("S3, S4: a client was shown %q, stored is %+v: %w", shown[0], r, err)
		}
	}
	return nil
}

// seeded is randomness that a seed decides.
type seeded struct{ *rand.Rand }

func (s seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.Uint32())
	}
	return len(p), nil
}

func TestSimulatedSchedulesKeepTheInvariants(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]retrysafe.Policy{
		"unprotected":             {},
		"unprotected, failing":    {Lapse: retrysafe.Fail},
		"unprotected, waiting":    {InFlight: retrysafe.Wait, Wait: 30 * time.Second},
		"keyed, rerun":            {Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun},
		"keyed, resume, waiting":  {Effects: retrysafe.Keyed, Lapse: retrysafe.Resume, InFlight: retrysafe.Wait},
		"keyed, short runs":       {Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun, MaxRun: 31 * time.Second},
		"unprotected, short runs": {MaxRun: 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range *schedules {
				if err := simulate(seed, p); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func TestSimulationIsDeterministic(t *testing.T) {
	t.Parallel()
	// What is broken must be found at the same seed each time. A retention that is
	// shorter than the clients' patience breaks S1, as it must.
	first := uint64(0)
	for round := range 3 {
		found := uint64(0)
		for seed := range uint64(2000) {
			if simulate(seed, retrysafe.Policy{Retention: 20 * time.Second}) != nil {
				found = seed + 1
				break
			}
		}
		if found == 0 || round > 0 && found != first {
			t.Fatalf("round %d found the bug at seed %d, the first at %d", round, found, first)
		}
		first = found
	}
}
