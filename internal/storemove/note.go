// Package storemove is what stores note of a move of their records: what a store is in
// it, and why nobody may use it meanwhile. See package move.
//
// A store that a move has closed has its tables under other names, so that no process
// finds them, however old it is and whatever it has prepared; its note says why.
package storemove

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Why a store is closed. Every step gets one of these, and nothing runs.
var (
	// ErrMoved says that the records are in another store, for good.
	ErrMoved = errors.New("this store was moved")
	// ErrFilling says that records are being moved here, and not all may be there.
	ErrFilling = errors.New("this store is being filled")
)

// Why a move is refused.
var (
	// ErrOvertaken says that another run of the move has begun since.
	ErrOvertaken = errors.New("another run has taken this move over")
	// ErrNotEmpty says that a store to be filled holds records of its own.
	ErrNotEmpty = errors.New("this store holds records already; move into an empty one")
	// ErrUndelivered says that the outbox is not empty; its messages do not move.
	ErrUndelivered = errors.New("the outbox is not empty")
	// ErrLeaving says that a store to be filled is the source of another move.
	ErrLeaving = errors.New("the records of this store are being moved away; it cannot be filled")
)

// A Part is what a store is in a move. Stores keep it as a number.
type Part int16

// The parts.
const (
	// Stays: it was followed, and is not any more.
	Stays Part = iota + 1
	// Followed: records are copied from it while it serves.
	Followed
	// Moved: closed, they are in another store.
	Moved
	// Filling: closed, they come from another store.
	Filling
)

// A Note is what a move has made of a store. The zero note: nothing.
type Note struct {
	Part   Part
	Run    retrysafe.Owner // the run of the move that did it
	Source retrysafe.Owner // the name of the store that records come from
	Peer   string          // the other store, as people call it
	At     time.Time
}

// Closed returns why nobody may use the store, or nil.
func (n *Note) Closed() error {
	at := n.At.Format("2006-01-02 15:04:05 MST")
	switch n.Part { //nolint:exhaustive // the others serve
	case Moved:
		return fmt.Errorf("%w to %s on %s; point the configuration there", ErrMoved, n.Peer, at)
	case Filling:
		return fmt.Errorf(`%w from %s, begun on %s; run the same "retrysafe keys copy" again to finish it`, ErrFilling, n.Peer, at)
	}
	return nil
}

// IsBy reports whether a run has made the store this part of its move.
func (n *Note) IsBy(p Part, run retrysafe.Owner) bool { return n.Part == p && n.Run == run }

// NewName returns a name that no other store has.
func NewName() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:]) // it never fails
	return o
}
