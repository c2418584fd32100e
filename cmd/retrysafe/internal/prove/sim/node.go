package sim

import (
	"context"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
)

// A node is a process: an engine, and the janitor's duties beside it. When it
// crashes, all of that is gone at once, and another one starts in its place.
type node struct {
	w      *world
	name   string
	alive  bool
	frozen time.Duration // until when nothing runs here
	offset time.Duration // of its clock

	engine     *retrysafe.Engine
	sweeper    *janitor.Sweeper
	reconciler *janitor.Reconciler
	reaper     *janitor.Reaper
	worker     *outbox.Worker
	pass       *pass
}

var nodeNames = [maxNodes]string{"node 1", "node 2", "node 3"}

var quiet = slog.New(slog.DiscardHandler)

// boot starts the node.
func (n *node) boot() {
	w := n.w
	if w.over {
		return
	}
	n.alive, n.frozen = true, 0
	e, err := retrysafe.New(&w.store, &retrysafe.Options{Policy: w.policy, Clock: n, Rand: w, Observer: n})
	if err != nil {
		w.violate("plan", nil, "the engine is refused: %v", err)
		return
	}
	n.engine = e
	o := janitor.Options{Workers: 1, Logger: quiet, Clock: n, Rand: n.rand, Observer: n}
	n.sweeper = janitor.NewSweeper(&w.store, &o)
	n.reconciler = janitor.NewReconciler(&w.store, n, &janitor.ReconcilerOptions{Options: o, Pause: 20 * time.Second, Tries: w.triesOf(mostTries, asksForEver), Settle: 20 * time.Second})
	r := janitor.ReaperOptions{Options: o}
	if w.policy.OnExpired == retrysafe.ExpiredGone {
		r.Tombstone = time.Minute
	}
	n.reaper = janitor.NewReaper(&w.store, &r)
	if w.way == byMessage {
		n.worker, err = outbox.NewWorker(&w.store, outbox.SinkFunc(w.deliver), &outbox.Options{
			Logger: quiet, Clock: n, Rand: n.rand, MaxTries: w.triesOf(leastSends+w.draw(mostSends-leastSends+1), sendsForEver), Batch: 1,
			Lease: workerLease, Timeout: sinkTimeout,
			Backoff: outbox.Backoff{First: time.Second, Longest: 20 * time.Second},
		})
		if err != nil {
			w.violate("plan", nil, "the worker is refused: %v", err)
			return
		}
	}
	w.spawn("keeper", n, time.Duration(w.draw(int(w.keeperRest/time.Second)))*time.Second, n.keep)
}

// crash ends the node. Its transactions hang until their server notices.
func (n *node) crash() {
	w := n.w
	w.happens(nodeCrashed)
	w.tracef("%s crashes", n.name)
	n.alive = false
	for i := len(w.pending) - 1; i >= 0; i-- {
		a := w.pending[i]
		switch {
		case a.node != n:
		case a.co == nil:
			w.dequeue(a)
		default:
			a.doomed, a.wake = true, w.now
		}
	}
	for _, t := range w.txs {
		if t.node == n {
			t.breaks()
		}
	}
	w.later(time.Duration(1+w.draw(60))*time.Second, n.boot)
	if w.at.node == n {
		w.at.doomed = true
		panic(crashed{}) //nolint:forbidigo // it unwinds the code of the node, and is caught
	}
}

// keep does the node's duties, one at a time while things go wrong. Afterwards one
// node does them all.
func (n *node) keep() {
	for round := 0; !n.w.closes; round++ {
		if n.w.calm {
			if n != &n.w.nodes[0] {
				return
			}
			n.deliver()
			n.sweep()
			if round%2 == 0 {
				n.reconcile()
			} else {
				n.reap()
			}
			n.w.pause(2 * time.Minute)
			continue
		}
		switch n.w.draw(5) {
		case 0:
			n.sweep()
		case 1:
			n.reconcile()
		case 2:
			n.reap()
		default:
			n.deliver()
		}
		n.w.pause(n.w.keeperRest)
	}
}

func (n *node) sweep() {
	did, err := n.sweeper.RunOnce(outside)
	n.w.did(sweepDone, did, err)
}

func (n *node) reconcile() {
	did, err := n.reconciler.RunOnce(outside)
	n.w.did(reconcileDone, did, err)
}

func (n *node) reap() {
	did, err := n.reaper.RunOnce(outside)
	n.w.did(reapDone, did, err)
}

// deliver does what is left to workers.
func (n *node) deliver() {
	if n.worker != nil {
		did, err := n.runWorker()
		n.w.did(outboxDone, did, err)
	}
	if n.w.way == byWorker {
		n.takeUp(outside)
	}
}

func (w *world) did(e event, n int, err error) {
	if w.at.doomed {
		return
	}
	if n > 0 {
		w.happens(e)
	}
	if w.traces && (n > 0 || err != nil) {
		w.tracef("%s: %d, %v", eventNames[e], n, err)
	}
}

// takeUp runs accepted work.
func (n *node) takeUp(ctx context.Context) {
	list, err := n.w.store.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}})
	if err != nil {
		return
	}
	for i := range list {
		x, err := n.engine.TakeUp(ctx, list[i])
		if err != nil {
			continue
		}
		n.w.happens(takenUp)
		n.work(x)
	}
}

// work runs an execution, and survives its panic.
func (n *node) work(x *retrysafe.Execution) {
	defer func() {
		if p := recover(); p != nil && p != any(errPanic) {
			panic(p) //nolint:forbidigo // not the operation's
		}
	}()
	_, _ = n.w.settle(x) // its client gets what is stored
}

// The node is its engine's clock. It may be wrong.

var _ retrysafe.Clock = (*node)(nil)

// Now implements [retrysafe.Clock].
func (n *node) Now() time.Time { return began.Add(n.w.now + n.offset) }

// Sleep implements [retrysafe.Clock].
func (n *node) Sleep(ctx context.Context, d time.Duration) error {
	n.w.pause(d)
	return ctx.Err()
}

// AfterFunc implements [retrysafe.Clock].
func (n *node) AfterFunc(d time.Duration, f func()) retrysafe.Timer {
	if n.w.at.doomed {
		return (*timer)(nil)
	}
	return (*timer)(n.w.spawn(timerName, n, d, f))
}

// timerName is the name of whatever a timer has started.
const timerName = "timer"

// A timer is an actor that has not begun.
type timer actor

// Stop implements [retrysafe.Timer].
func (t *timer) Stop() bool {
	if t == nil || t.place < 0 || t.co != nil {
		return false
	}
	t.w.dequeue((*actor)(t))
	return true
}

func (n *node) rand() float64 { return float64(n.w.draw(1000)) / 1000 }

// Read is the engines' randomness: it counts, so that owners are never the same and
// a reader can tell them apart.
func (w *world) Read(p []byte) (int, error) {
	clear(p)
	w.owners++
	binary.BigEndian.PutUint64(p[len(p)-8:], w.owners)
	if len(p) == len(retrysafe.Owner{}) {
		p[0] = 1 // eight zero bytes are a message's
	}
	return len(p), nil
}

// Observe implements [retrysafe.Observer].
func (n *node) Observe(e retrysafe.Event) {
	if n.w.over || n.w.at != nil && n.w.at.doomed {
		return
	}
	n.w.happens(firstEngineEvent + event(e.Kind))
	if n.w.traces {
		n.w.tracef("engine: %s %s/%s, attempt %d, %s, %v", e.Kind, e.Ref.Scope, e.Ref.Key, e.Attempt, e.State, e.Err)
	}
}
