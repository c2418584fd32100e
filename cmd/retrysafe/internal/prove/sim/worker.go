package sim

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

// What the workers of the outbox are told.
const (
	workerLease = 30 * time.Second
	sinkTimeout = 10 * time.Second
	// dragged bounds how slow a step of a worker is: a lease and a read together can take
	// most of the lease.
	dragged = 14 * time.Second
)

// A pass is one RunOnce of a node's worker, and what is known of it for certain.
type pass struct {
	cancel context.CancelFunc
	ends   time.Duration  // when the store ends the lease
	said   map[int64]bool // what a receiver has said of each message; true: the store was told
}

// runWorker lets the node's worker do all that is due. Each receipt is offered to the
// store, also if the worker's context has ended before that (S11).
func (n *node) runWorker() (delivered int, err error) {
	ctx, cancel := context.WithCancel(outside)
	defer cancel()
	n.pass = &pass{cancel: cancel, said: map[int64]bool{}}
	delivered, err = n.worker.RunOnce(ctx)
	if n.w.at.doomed {
		return delivered, err
	}
	for id, told := range n.pass.said {
		if !told {
			n.w.violate("S11", nil, "a receiver has answered message %d, and the store was not told", id)
		}
	}
	return delivered, err
}

// leased notes for how long the node's worker holds its shards, counted by the store.
func (w *world) leased(term time.Duration) {
	if n := w.at.node; n.pass != nil {
		n.pass.ends = w.now + term
	}
}

// covered holds that a message is sent only while its lease lasts for as long as the
// call of the sink may (S11). If a clock was set the worker cannot know.
func (w *world) covered(d *outbox.Delivery) {
	p := w.at.node.pass
	if left := p.ends - w.now; left < sinkTimeout && !w.jumped {
		w.violate("S11", &w.slots[d.Payload[0]], "a message is sent %v before the worker's lease ends, and the call may take %v", left, sinkTimeout)
	}
	p.said[d.ID] = false
}

// acked notes what the store is told.
func (p *pass) acked(ctx context.Context, endings []outbox.Ack) {
	for i := range endings {
		if ctx.Err() == nil {
			p.said[endings[i].ID] = true
		}
	}
}

// drags lets a step of a worker take long, as long as its context lasts.
func (w *world) drags(ctx context.Context) error {
	if w.calm || !w.sluggish || w.draw(3) == 0 {
		return nil
	}
	w.happens(stepDragged)
	w.pause(time.Duration(w.draw(int(dragged/time.Millisecond))) * time.Millisecond)
	return ctx.Err()
}

// dragsSink lets a call of the sink take long, and reports whether that was too long for
// its caller.
func (w *world) dragsSink(ctx context.Context) (late bool) { return w.drags(ctx) != nil }

// cancelsPass ends the context of a worker between a delivery and its acknowledgement,
// now and then.
func (w *world) cancelsPass() {
	if !w.calm && w.hit(w.rates.hangsUp) {
		w.happens(passCancelled)
		w.tracef("the worker's context ends")
		w.at.node.pass.cancel()
	}
}
