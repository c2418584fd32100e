// Package storemove is the contract between a store and the command that moves its
// records to another store, "retrysafe keys copy". It also defines the note that a
// store keeps of a move: the store's part in it, and why the store is closed.
//
// A move closes a database by renaming its tables, so that no process finds them: not an
// old version of this program either, nor a prepared statement. The note says why. In a
// store without transactions the note itself closes the store: see [Kept].
package storemove

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Why a store is closed. Every step on a closed store returns one of these errors.
var (
	// ErrMoved says that the records were moved to another store.
	ErrMoved = errors.New("this store was moved")
	// ErrFilling says that records are being moved into the store, and that some may
	// still be missing.
	ErrFilling = errors.New("this store is being filled")
)

// Why a move is refused.
var (
	// ErrOvertaken says that another run of the move has replaced this one.
	ErrOvertaken = errors.New("another run has taken this move over")
	// ErrNotEmpty says that the destination holds records of its own.
	ErrNotEmpty = errors.New("this store holds records already; move into an empty one")
	// ErrUndelivered says that the source's outbox holds messages. A move copies no
	// messages.
	ErrUndelivered = errors.New("the outbox is not empty")
	// ErrLeaving says that the destination is the source of another move.
	ErrLeaving = errors.New("the records of this store are being moved away; it cannot be filled")
)

// A Part is the role of a store in a move. Stores keep it as a number.
type Part int16

// The parts.
const (
	// Stays: a move was given up; the store is open.
	Stays Part = iota + 1
	// Followed: the store is open, and logs every write for a move.
	Followed
	// Moved: the store is closed, and its records are in another one.
	Moved
	// Filling: the store is closed, and gets its records from another one.
	Filling
)

// A Note is what a store keeps of the move that it is part of. The zero Note says that
// there was none.
type Note struct {
	Part   Part
	Run    retrysafe.Owner // the run of the move that wrote the note
	Source retrysafe.Owner // the identity of the source
	Peer   string          // the other store, as people call it
	At     time.Time
}

// Closed returns why the store is closed, or nil if it is open.
func (n *Note) Closed() error {
	at := n.At.Format("2006-01-02 15:04:05 MST")
	switch n.Part { //nolint:exhaustive // in the other parts a store is open
	case Moved:
		return fmt.Errorf("%w to %s on %s; point the configuration there", ErrMoved, n.Peer, at)
	case Filling:
		return fmt.Errorf(`%w from %s, begun on %s; run the same "retrysafe keys copy" again to finish it`, ErrFilling, n.Peer, at)
	}
	return nil
}

// IsBy reports whether the store has this part in this run.
func (n *Note) IsBy(p Part, run retrysafe.Owner) bool { return n.Part == p && n.Run == run }

// NewName returns a new identity for a source.
func NewName() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:]) // it never fails
	return o
}
