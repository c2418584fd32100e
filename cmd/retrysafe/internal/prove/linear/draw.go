package linear

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
)

// What a worker leaves to chance.

func (w *worker) chance(n, of int) bool { return w.rand.IntN(of) < n }

// mark returns a mark that no other step has.
func (w *worker) mark() uint64 {
	w.marks++
	return uint64(w.number)<<32 | uint64(w.marks)
}

// key draws one of the keys in turn, or of the turn before.
func (w *worker) key() uint32 {
	turn := w.turn.Load()
	if turn > 1 && w.chance(1, 6) {
		turn--
	}
	return turn*turnKeys + w.rand.Uint32N(turnKeys)
}

// deadline gives some steps too little time.
func (w *worker) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.chance(1, 40) {
		return context.WithTimeout(ctx, time.Duration(w.rand.IntN(2000))*time.Microsecond)
	}
	return context.WithTimeout(ctx, patience)
}

// draw draws a step for a key of which so much is known.
func (w *worker) draw(key uint32, seen [2]observation) *step {
	s := &step{frame: frame{Key: key, Do: load}}
	known := !seen[0].isZero()
	switch n := w.rand.IntN(100); {
	case n < 30:
		return s
	case known && n < 80:
		s.Do, s.Ask = swap, w.drawSwap(seen)
	default:
		s.Do, s.Ask = create, w.drawCreate(seen)
	}
	return s
}

// drawCreate mostly draws a new owner, otherwise one that was seen before, as for a
// step that is sent twice.
func (w *worker) drawCreate(seen [2]observation) ask {
	a := ask{Mark: w.mark(), Point: w.chance(1, 4), SetPoint: w.chance(1, 2)}
	a.Owner = a.Mark
	if was := seen[w.rand.IntN(2)]; !was.isZero() && w.chance(1, 4) {
		a.Owner = was.Owner
	}
	w.drawState(&a)
	return a
}

// drawSwap mostly expects what was seen last; else it expects what was there before,
// or what never was.
func (w *worker) drawSwap(seen [2]observation) ask {
	expect := seen[0]
	switch n := w.rand.IntN(20); {
	case n < 3 && !seen[1].isZero():
		expect = seen[1]
	case n < 4 && !seen[1].isZero():
		expect.Owner = seen[1].Owner
	case n < 5 && !seen[1].isZero():
		expect.Revision = seen[1].Revision
	case n < 6:
		expect.Revision += int64(w.rand.IntN(3)) - 1
	}
	a := ask{Mark: w.mark(), Owner: expect.Owner, Revision: expect.Revision, Overwrite: w.chance(1, 4), Point: w.chance(1, 2), SetPoint: w.chance(1, 2)}
	w.drawState(&a)
	return a
}

var states = []retrysafe.State{
	retrysafe.StateInProgress, retrysafe.StateInProgress, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateCompleted, retrysafe.StateCompleted,
	retrysafe.StateRetryable, retrysafe.StateRetryable, retrysafe.StateExpired, retrysafe.StateUnknown, retrysafe.StateAccepted,
}

// long is a term that does not pass during the check, in microseconds.
const long = int64(time.Hour / time.Microsecond)

// drawState also says for how long. Half of what can be forgotten is so soon.
func (w *worker) drawState(a *ask) {
	a.State = states[w.rand.IntN(len(states))]
	a.Term = long
	if w.chance(1, 2) {
		a.Term = w.rand.Int64N(2000)
	}
}
