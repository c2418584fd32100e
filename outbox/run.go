package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deadline"
)

// Run delivers messages until ctx ends. Then it waits for the calls that are under way,
// stores their acknowledgements, and gives its shards back.
func (w *Worker) Run(ctx context.Context) error {
	l := newLoop(w)
	if n, ok := w.store.(CommitNotifier); ok {
		defer n.NotifyCommits(w.Wake)()
	}
	var performing sync.WaitGroup
	defer performing.Wait()
	ended := make(chan action, w.opts.Concurrency+3) // there is room for all that can be under way
	timer := alarm{clock: w.opts.Clock, rings: make(chan struct{}, 1)}
	defer timer.clear()
	done, steps := ctx.Done(), context.WithoutCancel(ctx)
	for {
		if ctx.Err() != nil {
			l.stop()
			done = nil
		}
		now := w.opts.Clock.Now()
		for a := l.next(now); a != nil; a = l.next(now) {
			performing.Go(func() {
				a.perform(steps, w)
				ended <- a
			})
		}
		if l.stopped() {
			ctx, cancel := deadline.After(steps, w.opts.Clock, w.opts.Lease)
			defer cancel()
			return w.Release(ctx)
		}
		timer.set(now, l.wakeAt(now))
		select {
		case <-done:
		case <-w.wake:
			l.wake(w.opts.Clock.Now())
		case <-timer.rings:
			timer.clear()
		case a := <-ended:
			l.finish(a, w.opts.Clock.Now())
		}
	}
}

// An alarm rings at a time by a clock.
type alarm struct {
	clock retrysafe.Clock
	rings chan struct{}
	at    time.Time // zero: it is not set
	timer retrysafe.Timer
}

// set makes the alarm ring at this time, and at no other. Zero: never.
func (a *alarm) set(now, at time.Time) {
	if at.Equal(a.at) {
		return
	}
	a.clear()
	if at.IsZero() {
		return
	}
	a.at, a.timer = at, a.clock.AfterFunc(at.Sub(now), func() {
		select {
		case a.rings <- struct{}{}:
		default:
		}
	})
}

func (a *alarm) clear() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.at, a.timer = time.Time{}, nil
}
