package sqlitestore

import (
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// row is one key: as it was read, and as the requests of a batch have changed it.
type row struct {
	id      id
	number  int64 // zero if the key did not exist when it was read
	exists  bool
	changed bool
	rec     retrysafe.Record
	err     error // the record cannot be read

	assumed reservedRow // how the row is taken to be without a read; zero if it is read
	kept    reservedRow // what was written, if it is to be remembered
}

// apply applies a request to the row, or returns why it is refused.
func (at *row) apply(q *request, now time.Time, fence int64) error {
	revision := now.UnixMicro()
	switch {
	case at.err != nil:
		return at.err
	case !at.exists && q.create:
		at.rec = q.w.Record
		at.rec.CreatedAt = now
		revision = max(revision, fence+1)
	case !at.exists:
		return retrysafe.ErrNotFound
	case at.rec.Ref != q.w.Ref:
		at.err = errOther
		return at.err
	case q.create && at.rec.Owner == q.w.Owner && !q.w.Owner.IsZero():
		return nil
	case q.create:
		return retrysafe.ErrExists
	case at.rec.Fence() != q.w.Expect:
		return retrysafe.ErrConflict
	default:
		revision = max(revision, at.rec.Revision+1)
		at.rec = storekit.Apply(&at.rec, &q.w, now)
	}
	r := &at.rec
	r.UpdatedAt, r.Deadline, r.Revision = now, now.Add(q.w.Term).Truncate(time.Microsecond), revision
	at.exists, at.changed = true, true
	return nil
}

// The column due orders rows by state, and then by deadline in microseconds.
const (
	stateShift  = 56
	maxDeadline = 1<<stateShift - 1
)

func dueOf(r *retrysafe.Record) int64 {
	return int64(r.State)<<stateShift | min(max(r.Deadline.UnixMicro(), 0), maxDeadline)
}

// dueRange returns the range of the column due for rows of a state that are due at a
// time.
func dueRange(state retrysafe.State, at time.Time) (first, last int64) {
	r := retrysafe.Record{State: state, Deadline: at}
	return int64(state) << stateShift, dueOf(&r)
}
