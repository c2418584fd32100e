package pgstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/retrysafe/retrysafe"
)

// The second index of the table is on (keep, due): a row is in a bucket, keep, and has a
// slot in it, due. Both are known when the key is reserved, and a settlement or a
// heartbeat usually changes neither, so that no index changes.
//
// The bucket is the retention of the answer in seconds, and the slot the second in which
// the first lease ends. Accepted rows and unknown rows have a bucket of their own each,
// where they are found among any number of others. A row that enters or leaves one of
// these is moved, which is rare.

const (
	// slotEpoch is the second from which slots count.
	slotEpoch = 1_600_000_000
	// slotSlack is by how many seconds the slot of a settled row may be too late: if its
	// lease was shorter than this the row is not moved.
	slotSlack = 300
)

// The buckets that no retention has.
const (
	bucketAccepted   = math.MaxInt32 - 1
	bucketUnknown    = math.MaxInt32
	longestRetention = bucketAccepted - 1
)

// bucketOf is the bucket of a record after this write.
func bucketOf(w *retrysafe.Write) int32 {
	retention := w.Retain
	switch {
	case w.State == retrysafe.StateAccepted:
		return bucketAccepted
	case w.State == retrysafe.StateUnknown:
		return bucketUnknown
	case w.State.Forgettable():
		retention = w.Term
	}
	return int32(min(max(retention, 0)/time.Second, longestRetention))
}

// haveOwnBuckets reports whether rows in these states have buckets of their own.
func haveOwnBuckets(states []retrysafe.State) bool {
	for _, state := range states {
		if state != retrysafe.StateAccepted && state != retrysafe.StateUnknown {
			return false
		}
	}
	return len(states) > 0
}

// hashSlot is the slot of an accepted row: four bytes of its hash, so that the work of one
// tenant is spread over the bucket, and a page of it is read alone.
func (i id) hashSlot() int32 { return int32(int64(binary.BigEndian.Uint32(i[12:])) + math.MinInt32) }
