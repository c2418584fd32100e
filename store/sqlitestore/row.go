package sqlitestore

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// row is what is known of one key: as it was read, and as steps have left it
// since.
type row struct {
	id      id
	number  int64 // zero if it was not there when it was read
	exists  bool
	changed bool
	rec     retrysafe.Record
	err     error // the record cannot be read
}

// take does a step on the row, or says why not.
func (at *row) take(st *step, now time.Time, fence int64) error {
	revision := now.UnixMicro()
	switch {
	case at.err != nil:
		return at.err
	case !at.exists && st.create:
		at.rec = st.r
		at.rec.CreatedAt = now
		revision = max(revision, fence+1)
	case !at.exists:
		return retrysafe.ErrNotFound
	case at.rec.Ref != st.r.Ref:
		at.err = errOther
		return at.err
	case st.create && at.rec.Owner == st.r.Owner && !st.r.Owner.IsZero():
		return nil
	case st.create:
		return retrysafe.ErrExists
	case at.rec.Revision != st.r.Revision || at.rec.Owner != st.r.Owner:
		return retrysafe.ErrConflict
	default:
		revision = max(revision, at.rec.Revision+1)
		at.rec = retrysafe.Swapped(&at.rec, &st.r, now)
	}
	r := &at.rec
	r.UpdatedAt, r.Deadline, r.Revision = now, now.Add(r.Term).Truncate(time.Microsecond), revision
	r.Claim, r.Term, r.Relaxed = retrysafe.Owner{}, 0, false
	at.exists, at.changed = true, true
	return nil
}

// A row is filed by its state, and then by its deadline in microseconds.
const (
	stateShift  = 56
	maxDeadline = 1<<stateShift - 1
)

func dueOf(r *retrysafe.Record) int64 {
	return int64(r.State)<<stateShift | min(max(r.Deadline.UnixMicro(), 0), maxDeadline)
}

// dueRange is where the rows of a state are filed that are due at a time.
func dueRange(state retrysafe.State, at time.Time) (first, last int64) {
	r := retrysafe.Record{State: state, Deadline: at}
	return int64(state) << stateShift, dueOf(&r)
}
