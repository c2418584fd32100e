package recoverytest

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe"
)

// world is the stage of one goroutine and virtual time. Actors are coroutines. One runs
// at a time, until it sleeps, and a seed decides which of the ready ones is next.
type world struct {
	rng    *rand.Rand
	now    time.Time
	actors []*actor
	at     *actor // the running actor
	open   int    // actors, without timers, that have not ended
}

type actor struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool // set when it has begun
	wake  time.Time
	over  bool
}

func newWorld(seed uint64) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)}
}

// errOver unwinds a sleeping actor at the end of the simulation.
var errOver = errors.New("the simulation has ended")

func (w *world) spawn(after time.Duration, act func()) *actor {
	a := &actor{wake: w.now.Add(after)}
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if p := recover(); p != nil && p != any(errOver) {
				panic(p) //nolint:forbidigo // the actor's own panic goes on
			}
		}()
		act()
	})
	w.actors = append(w.actors, a)
	return a
}

func (w *world) Now() time.Time { return w.now }

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	if w.at == nil { // no actor runs: the test itself waits
		w.run(w.now.Add(d), func() bool { return false })
		return ctx.Err()
	}
	a := w.at
	a.wake = w.now.Add(d)
	if !a.yield(struct{}{}) {
		panic(errOver) //nolint:forbidigo // it unwinds a coroutine, and is recovered there
	}
	return ctx.Err()
}

func (w *world) AfterFunc(d time.Duration, f func()) retrysafe.Timer {
	return (*timer)(w.spawn(d, f))
}

// timer is an actor that has not begun.
type timer actor

func (t *timer) Stop() bool {
	pending := t.yield == nil && !t.over
	if pending {
		t.over = true
		t.stop()
	}
	return pending
}

func (w *world) Go(act func()) {
	w.open++
	w.spawn(0, func() {
		act()
		w.open--
	})
}

func (w *world) Wait() {
	w.run(w.now.Add(100*24*time.Hour), func() bool { return w.open == 0 })
}

// run runs actors until enough returns true or until.
func (w *world) run(until time.Time, enough func() bool) {
	defer func() { w.at = nil }()
	for !enough() {
		var ready []*actor
		var soonest *actor
		left := w.actors[:0]
		for _, a := range w.actors {
			if a.over {
				continue
			}
			left = append(left, a)
			if !a.wake.After(w.now) {
				ready = append(ready, a)
			} else if soonest == nil || a.wake.Before(soonest.wake) {
				soonest = a
			}
		}
		clear(w.actors[len(left):])
		w.actors = left
		if len(ready) == 0 {
			if soonest == nil || soonest.wake.After(until) {
				w.now = until
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

// finish unwinds the actors that are left.
func (w *world) finish() {
	for _, a := range w.actors {
		w.at, a.over = a, true
		a.stop()
	}
}
