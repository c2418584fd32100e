package linear

import (
	"errors"
	"math"

	"github.com/retrysafe/retrysafe"
)

// A step is one call of the store's contract, as its caller saw it.
type step struct {
	frame
	// until is what the store's clock had not passed when the step returned. Judges
	// find that out.
	until int64
}

// A frame is what a step says of itself. It has nothing but numbers, so that it can be
// passed on as it is.
type frame struct {
	Worker uint32
	// Key is the number of the key. A purge has none.
	Key  uint32
	Do   operation
	How  txMode
	End  end
	Ask  ask
	Got  observation
	Call int64
	// Return is [never] for a step whose end was not seen.
	Return int64
}

const never = math.MaxInt64

// An operation is what a step does.
type operation uint8

const (
	load operation = iota + 1
	create
	swap
	purge
)

// A txMode is how a step is done.
type txMode uint8

const (
	// alone: it is a step of the store itself.
	alone txMode = iota
	// inTx: it is a step in a transaction, and lasts until that has ended. A load
	// in a transaction reserves the key.
	inTx
	// holding is inTx behind a load that has got the key, and found it free.
	holding
)

// An end is how a step ended.
type end uint8

const (
	// open: it has not ended, or its client was killed before it could report.
	open end = iota
	// done: it was applied, or has found what it looked for.
	done
	// The sentinels.
	exists
	conflict
	missing
	busy
	full
	unreadable
	// unclear: an error that says nothing. It may have been applied, or may be yet.
	unclear
	// withdrawn: it was applied in a transaction that was rolled back.
	withdrawn
	// void: it was not applied, and has seen nothing.
	void
	// applied: unclear, but another step has seen what it wrote. Only the judge sets it.
	applied
)

var endNames = [...]string{"?", "ok", "exists", "conflict", "not found", "busy", "full", "unreadable", "unclear", "ok, rolled back", "nothing", "unclear, but seen"}

// endOf says how a step ended that returned err.
func endOf(err error) end {
	switch {
	case err == nil:
		return done
	case errors.Is(err, retrysafe.ErrExists):
		return exists
	case errors.Is(err, retrysafe.ErrConflict):
		return conflict
	case errors.Is(err, retrysafe.ErrNotFound):
		return missing
	case errors.Is(err, retrysafe.ErrBusy):
		return busy
	case errors.Is(err, retrysafe.ErrFull):
		return full
	case errors.Is(err, retrysafe.ErrUnreadable):
		return unreadable
	default:
		return unclear
	}
}

// writes reports whether the step changes a record if it is applied.
func (s *step) writes() bool { return s.Do == create || s.Do == swap }

// An ask is what a create or a swap wants.
type ask struct {
	// Mark is unique to the step. It is in everything that the step writes, so that a step
	// that reads it proves that this one was applied.
	Mark uint64
	// Owner is the owner that a swap expects, or the owner that a create stores.
	Owner uint64
	// Revision is the revision that a swap expects.
	Revision int64
	// Term is in microseconds.
	Term  int64
	State retrysafe.State
	// Overwrite: the swap replaces the whole record, and its owner becomes Mark.
	Overwrite bool
	// Point: the write holds a checkpoint. SetPoint: it is to be stored, whether there
	// is one or not, also by a swap that does not overwrite.
	Point, SetPoint bool
}

// A observation is a record as it was seen. The zero sight is none.
type observation struct {
	Revision int64
	Owner    uint64
	// Head, Tail and Point are the marks of the steps that wrote what stays through
	// an attempt, what each step writes, and the checkpoint.
	Head, Tail, Point uint64
	// Deadline and ReadAt are the store's, in microseconds.
	Deadline, ReadAt int64
	State            retrysafe.State
	// Torn: parts that belong together have different marks.
	Torn bool
}

func (s *observation) isZero() bool { return *s == observation{} }
