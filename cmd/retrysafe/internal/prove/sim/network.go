package sim

import (
	"context"
	"errors"
	"time"
)

// A transit is what becomes of a request on the network, and of the reply to it.
type transit uint8

const (
	arrives transit = iota
	losesRequest
	losesReply
	comesLate // it is applied when its sender has given up
	comesTwice
)

var transitNames = [...]string{"", ", and the request is lost", ", and the reply is lost", ", and it comes late", ", and it comes twice"}

var (
	errLost    = errors.New("sim: connection lost")
	errTimeout = errors.New("sim: no answer in time")
)

// perils lets the running actor's node crash or freeze, or the actor be slow, as may
// happen at any step.
func (w *world) perils() {
	if w.at.doomed {
		panic(crashed{}) //nolint:forbidigo // a node crashes once; what unwinds goes on unwinding
	}
	if w.calm || w.at.node == nil {
		return
	}
	n := w.at.node
	switch f := 999 - w.draw(1000); {
	case f < w.rates.crash:
		n.crash()
	case f < w.rates.crash+w.rates.freeze:
		n.frozen = w.now + time.Duration(1+w.draw(100))*time.Second
		w.happens(nodeFroze)
		w.tracef("%s freezes until %v", n.name, n.frozen)
		w.pause(0)
	case f < w.rates.crash+w.rates.freeze+w.rates.slow:
		d := time.Duration(1+w.draw(90)) * time.Second
		w.happens(actorSlowed)
		w.tracef("is slow for %v", d)
		w.pause(d)
	}
}

// travels lets a request go on its way and says what becomes of it.
func (w *world) travels() transit {
	w.perils()
	w.pause(time.Duration(1+w.draw(40)) * time.Millisecond)
	if w.calm {
		return arrives
	}
	r := &w.rates
	f := 999 - w.draw(1000)
	for i, rate := range [...]int{r.lostRequest, r.lostReply, r.late, r.twice} {
		if f -= rate; f < 0 {
			w.happens(requestLost + event(i))
			return losesRequest + transit(i)
		}
	}
	return arrives
}

// reaches lets a request go to the store, which may be down.
func (w *world) reaches() transit {
	w.asked()
	f := w.travels()
	if !w.calm && w.now < w.down {
		return losesRequest
	}
	return f
}

// returns lets a reply come back.
func (w *world) returns(f transit) error {
	if f == losesReply {
		return w.gives()
	}
	if !w.calm && w.draw(4) == 3 { // the moment between the step and its reply
		w.perils()
		w.pause(time.Duration(w.draw(40)) * time.Millisecond)
	}
	return nil
}

// gives lets the sender find out that there will be no reply: at once, or when it
// has waited for long enough.
func (w *world) gives() error {
	if w.draw(2) == 0 {
		w.pause(0)
		return errLost
	}
	w.pause(1500 * time.Millisecond)
	return errTimeout
}

// soon is when a step that comes late is applied.
func (w *world) soon() time.Duration { return time.Duration(100+w.draw(60_000)) * time.Millisecond }

// hangUp is the context of a client that goes away at a moment.
type hangUp struct {
	context.Context
	w  *world
	at time.Duration
}

// Err implements [context.Context].
func (h *hangUp) Err() error {
	if h.w.now >= h.at {
		return context.Canceled
	}
	return nil
}
