package memstore

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

const (
	defaultMaxRecords = 1_000_000
	defaultMaxBytes   = 256 << 20

	// overhead is what a record costs beside its texts: the entry, its slot in
	// the map at an ordinary load, and its place in the due heap.
	overhead = 576
	// stringOverhead is what one string of an answer's header costs beside its bytes.
	stringOverhead = 16
	// noteOverhead is what one note costs beside its texts.
	noteOverhead = 80
)

// errNoRoom: the caller should delete records that are due and try again. It never
// leaves the package.
var errNoRoom = errors.New("no room")

// limits are the bounds, in the order in which they are reached.
type limits struct {
	records  int64
	newBytes int64 // new work is admitted up to here; the rest is the reserve
	maxBytes int64 // a running attempt may grow up to here
}

func newLimits(o *Options) limits {
	l := limits{records: int64(o.MaxRecords), maxBytes: o.MaxBytes}
	if l.records <= 0 {
		l.records = defaultMaxRecords
	}
	if l.maxBytes <= 0 {
		l.maxBytes = defaultMaxBytes
	}
	l.newBytes = l.maxBytes - l.maxBytes/8
	return l
}

// usage counts the records and their bytes, open transactions included.
type usage struct{ records, bytes atomic.Int64 }

// admit charges a new record, or changes nothing and reports false if there is no room.
func (u *usage) admit(size int64, l *limits) bool {
	if !take(&u.records, 1, l.records) {
		return false
	}
	if !take(&u.bytes, size, l.newBytes) {
		u.records.Add(-1)
		return false
	}
	return true
}

// grow charges the growth of a record by a swap, or changes nothing and reports false
// if there is no room for this kind of swap.
func (u *usage) grow(growth int64, w *retrysafe.Write, l *limits) bool {
	switch {
	case growth <= 0:
		// A heartbeat or a shrinking swap is accepted in a full store.
	case w.Overwrite:
		return take(&u.bytes, growth, l.newBytes)
	case w.State == retrysafe.StateInProgress:
		return take(&u.bytes, growth, l.maxBytes)
	}
	u.bytes.Add(growth)
	return true
}

// release returns the room of one record.
func (u *usage) release(size int64) {
	u.records.Add(-1)
	u.bytes.Add(-size)
}

func take(used *atomic.Int64, n, limit int64) bool {
	for {
		before := used.Load()
		if before+n > limit {
			return false
		}
		if used.CompareAndSwap(before, before+n) {
			return true
		}
	}
}

// forgetAndRetry repeats try while it finds no room and there are due records to
// delete. If there are none, its error says what to do.
func (s *Store) forgetAndRetry(verb string, try func() error) error {
	for {
		forgotten := s.forget(purgeBatch)
		if err := try(); !errors.Is(err, errNoRoom) {
			return err
		}
		if forgotten == 0 {
			return fmt.Errorf("%s: memstore holds %d of %d records and %d of %d bytes, an eighth of them kept for answers, and nothing is due to be forgotten; "+
				"raise MaxRecords or MaxBytes, keep answers for less time, or use a store on disk: %w",
				verb, s.used.records.Load(), s.limits.records, s.used.bytes.Load(), s.limits.maxBytes, retrysafe.ErrFull)
		}
	}
}

// sizeOf returns the bytes that a record is charged for.
func sizeOf(r *retrysafe.Record) int64 {
	n := overhead + len(r.Scope) + len(r.Key) + len(r.KeyText) + len(r.Operation) + len(r.Request) +
		len(r.Checkpoint.Phase) + len(r.Checkpoint.Data) + len(r.ProviderRef) + len(r.Reason)
	if r.Result != nil {
		n += len(r.Result.Body)
		for name, values := range r.Result.Header {
			n += stringOverhead + len(name)
			for _, v := range values {
				n += stringOverhead + len(v)
			}
		}
	}
	n += noteOverhead * cap(r.Inquiry.Notes)
	for i := range r.Inquiry.Notes {
		n += len(r.Inquiry.Notes[i].By) + len(r.Inquiry.Notes[i].Text) + len(r.Inquiry.Notes[i].ID)
	}
	return int64(n)
}
