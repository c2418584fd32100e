package sim

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A client wants one thing done and retries with the same key until it is, or until
// it has lost its patience.
type client struct {
	w     *world
	slot  *slot
	print byte // of what it wants
	tries int
	steps int // of the store, in the present call
}

func (c *client) fingerprint() (f retrysafe.Fingerprint) {
	f.Alg, f.Sum[0] = 1, c.print
	return f
}

// live sends the request until it has an answer.
func (c *client) live() {
	w := c.w
	for range c.tries {
		if c.asks(w.draw(w.nodeCount)) || w.over {
			return
		}
		w.pause(time.Duration(100+w.draw(25_000)) * time.Millisecond)
	}
}

// errCut: the node has crashed.
var errCut = errors.New("sim: cut off")

// asks sends the request to a node once, and reports whether that settles it.
func (c *client) asks(at int) (final bool) {
	w := c.w
	n := &w.nodes[at]
	if !n.alive || n.frozen > w.now {
		return false
	}
	var ctx context.Context = outside
	if !w.calm && w.hit(w.rates.hangsUp) {
		w.happens(clientHungUp)
		ctx = &hangUp{outside, w, w.now + time.Duration(w.draw(3000))*time.Millisecond}
	}
	s := c.slot
	before, stored := s.gen, !s.gone && s.rec.State == retrysafe.StateCompleted && !s.hidden
	if w.traces {
		w.tracef("asks %s for %s, request %d", n.name, s.name, c.print)
	}
	out, err := c.call(ctx, n)
	if w.over {
		return true
	}
	if err == nil {
		c.shown(&out)
		return true
	}
	final = c.refused(err)
	// What was stored before the call, and is there for certain still, is what the
	// call gets.
	w.clock()
	if !stored || s.gone || s.gen != before || !w.latest.Before(s.rec.Deadline) {
		return final
	}
	if errors.Is(err, retrysafe.ErrInFlight) && w.way != byDoTx || errors.Is(err, retrysafe.ErrUnknown) || errors.Is(err, retrysafe.ErrAccepted) {
		w.violate("S4", s, "an answer is stored and not due, and a retry gets: %v", err)
	}
	return final
}

// call makes the request, on the node and with its code. If the node crashes the
// client is cut off.
func (c *client) call(ctx context.Context, n *node) (out retrysafe.Outcome, err error) {
	w, a := c.w, c.w.at
	a.node, a.call, c.steps = n, c, 0
	defer func() {
		a.node, a.call = nil, nil
		p := recover()
		if p == nil {
			return
		}
		if p != any(crashed{}) && p != any(errPanic) {
			panic(p) //nolint:forbidigo // not ours
		}
		a.doomed = a.doomed && w.over
		w.happens(clientCutOff)
		err = errCut
	}()
	call := retrysafe.Call{Ref: c.slot.ref, Operation: "charge", Fingerprint: c.fingerprint()}
	switch w.way {
	case byWorker:
		replay, err := n.engine.Accept(ctx, call, []byte{c.print})
		if err != nil {
			return out, err
		}
		return *replay, nil
	case byDoTx:
		return retrysafe.DoTx(ctx, n.engine, &w.store, call, func(ctx context.Context, t *tx) (retrysafe.Result, error) {
			return w.inTx(ctx, c, t)
		})
	case byBegin:
		x, replay, err := n.engine.Begin(ctx, call)
		if err != nil {
			return out, err
		}
		if replay != nil {
			return *replay, nil
		}
		return w.settle(x)
	default:
		return n.engine.Do(ctx, call, w.operate)
	}
}

// shown: the client has an answer.
func (c *client) shown(out *retrysafe.Outcome) {
	w, s := c.w, c.slot
	w.happens(answerShown)
	if out.Replayed {
		w.happens(answerReplayed)
	}
	if w.traces {
		w.tracef("is shown %x, replayed %t", out.Body, out.Replayed)
	}
	w.hash = mixed(w.hash ^ uint64(out.Status) ^ uint64(len(out.Body))<<32)
	if len(out.Body) == 5 && int(out.Body[0]) < len(w.slots) && &w.slots[out.Body[0]] != s {
		w.violate("S7", s, "a client is shown the answer of %s", w.slots[out.Body[0]].name)
		return
	}
	var stored, mine *answer
	for i := range s.answers { // two generations may have the same answer
		if a := &s.answers[i]; a.result.Equal(&out.Result) {
			stored = a
			if a.print == c.print {
				mine = a
			}
		}
	}
	switch {
	case stored == nil:
		w.violate("S3", s, "a client is shown %q, which was never stored", out.Body)
	case mine == nil:
		w.violate("S6", s, "request %d is shown the answer of request %d", c.print, stored.print)
	case mine.gen < s.gen && w.latest.Before(mine.until):
		w.violate("S2", s, "an answer of generation %d is shown in generation %d", mine.gen, s.gen)
	}
}

// refused: the client has no answer. It reports whether that is final.
func (c *client) refused(err error) (final bool) {
	w := c.w
	if w.traces {
		w.tracef("is told: %v", err)
	}
	for _, k := range [...]struct {
		why   error
		is    event
		final bool
	}{
		{retrysafe.ErrInFlight, refusedInFlight, false}, {retrysafe.ErrAccepted, refusedAccepted, false},
		{retrysafe.ErrUnknown, refusedUnknown, false}, {retrysafe.ErrMismatch, refusedMismatch, true},
		{retrysafe.ErrGone, refusedGone, true}, {retrysafe.ErrUnreadable, refusedUnreadable, true},
		{retrysafe.ErrUnavailable, refusedUnavailable, false}, {retrysafe.ErrUnsettled, unsettled, false},
		{retrysafe.ErrLost, zombieRefused, false},
	} {
		if errors.Is(err, k.why) {
			w.happens(k.is)
			return k.final
		}
	}
	return false
}
