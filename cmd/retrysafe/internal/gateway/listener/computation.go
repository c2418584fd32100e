package listener

import (
	"context"
	"net/netip"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// newHandshakeTurns bounds how many TLS handshakes of one address are computed at a time.
// A turn is held while a handshake is computed and not while it waits for its client, so a
// slow client holds up no other of its address.
func newHandshakeTurns() *admission.Turns[netip.Addr] {
	return admission.NewTurns[netip.Addr](admission.Processors() / 2)
}

// A computation is the part of one handshake's time in which it has a turn. It is used by
// the handshake's goroutine alone.
type computation struct {
	turns *admission.Turns[netip.Addr]
	ctx   context.Context
	of    netip.Addr
	// others reports whether other addresses have connections. Then a turn rests three times
	// as long as it was computed in, so that the handshakes of one address take an eighth of
	// the processors at most. Nil: there are none.
	others func() bool
	has    bool
	since  time.Time // if it has a turn
}

const (
	// restFactor is how many times as long as it was computed in a turn rests.
	restFactor = 3
	// mostRest bounds the rest of a turn: on a busy machine a computation takes longer than it
	// computes.
	mostRest = restFactor * 2 * time.Millisecond
)

// read reads from the client without a turn, and returns with one.
func (c *computation) read(from func([]byte) (int, error), p []byte) (int, error) {
	c.pause()
	n, err := from(p)
	if e := c.turns.Take(c.ctx, c.of); e != nil {
		return 0, e
	}
	c.has, c.since = true, time.Now()
	return n, err
}

// pause gives the turn back, if there is one.
func (c *computation) pause() {
	if !c.has {
		return
	}
	c.has = false
	if c.others != nil && c.others() {
		time.AfterFunc(min(restFactor*time.Since(c.since), mostRest), func() { c.turns.Give(c.of) })
		return
	}
	c.turns.Give(c.of)
}
