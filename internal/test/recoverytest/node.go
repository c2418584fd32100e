package recoverytest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

// A node is one process: an engine, and its connection to the store, which may be cut.
type node struct {
	retrysafe.Store
	scene *scene
	way   atomic.Int32
	under atomic.Int32 // steps under way
}

const (
	joined int32 = iota
	cut          // steps block until it is connected again
	dead         // the process has crashed
)

var errCut = errors.New("no connection to the store")

// step sends one step to the store, sometimes after a long delay.
func (n *node) step(ctx context.Context, do func(context.Context) (retrysafe.Record, error)) (retrysafe.Record, error) {
	s := n.scene
	if n.way.Load() == joined && s.chance(3) {
		s.nap(ctx, 2*s.lease)
	} else if !s.real {
		s.nap(ctx, s.lease/20)
	}
	n.under.Add(1)
	s.under.Add(1)
	defer func() {
		s.under.Add(-1)
		n.under.Add(-1)
	}()
	if n.way.Load() != joined {
		return retrysafe.Record{}, errCut
	}
	return do(context.WithoutCancel(ctx))
}

func (n *node) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return n.step(ctx, func(ctx context.Context) (retrysafe.Record, error) { return n.Store.Create(ctx, w) })
}

func (n *node) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if n.way.Load() == dead {
		// A dead process sends nothing any more. Here its heartbeat still runs, and
		// needs an answer that ends it.
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	return n.step(ctx, func(ctx context.Context) (retrysafe.Record, error) { return n.Store.Swap(ctx, w) })
}

func (n *node) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return n.step(ctx, func(ctx context.Context) (retrysafe.Record, error) { return n.Store.Load(ctx, ref) })
}

// crash ends the process at any point.
func (n *node) crash(x *retrysafe.Execution) {
	n.way.Store(dead)
	x.Stop()
}

// freeze stops an owner, or cuts its connection, for longer than its lease.
func (n *node) freeze(ctx context.Context) {
	n.way.Store(cut)
	n.scene.nap(ctx, n.scene.lease)
	n.scene.nap(ctx, 2*n.scene.lease)
	n.way.Store(joined)
}

// quiet runs do while no step of the node is under way. A heartbeat that waits for a
// transaction of its own process would block the transaction.
func (n *node) quiet(ctx context.Context, do func()) {
	n.way.Store(cut)
	for n.under.Load() > 0 {
		_ = n.scene.stage.Sleep(context.WithoutCancel(ctx), n.scene.lease/40)
	}
	do()
	n.way.CompareAndSwap(cut, joined)
}
