// Package storekit is what stores are built from: the meaning of a swap, the choice of
// a query, and the encoding of records for stores that keep them as bytes. A program
// that uses a store needs none of it. docs/adding-a-store.md shows how it is used.
package storekit

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// Apply returns the record that w leaves behind where it meets stored, at the store's
// now, for stores that read before they write. The store has compared w.Expect before.
//
// It is what [retrysafe.Swapper] promises, with four fields left to the store: it sets
// Revision, Deadline and UpdatedAt before it stores the record, and ReadAt in what it
// returns. Until then they hold what w held.
func Apply(stored *retrysafe.Record, w *retrysafe.Write, now time.Time) retrysafe.Record {
	next := w.Record
	next.Ref, next.CreatedAt = stored.Ref, stored.CreatedAt
	if w.Overwrite {
		if w.Attempt == 1 {
			next.CreatedAt = now
		}
		return next
	}
	next.Owner, next.Operation, next.Fingerprint, next.KeyText = stored.Owner, stored.Operation, stored.Fingerprint, stored.KeyText
	next.Request, next.Attempt = stored.Request, stored.Attempt
	if !w.SetCheckpoint {
		next.Checkpoint = stored.Checkpoint
	}
	return next
}

// Matches reports whether the query selects r, paging aside. Whether r is due is judged
// by r.ReadAt, which the store sets before. For a record that cannot be read it says
// nothing.
func Matches(q *retrysafe.Query, r *retrysafe.Record) bool {
	if q.Scope != "" && q.Scope != r.Scope || q.Due && !r.Due() {
		return false
	}
	for _, s := range q.States {
		if s == r.State {
			return true
		}
	}
	return len(q.States) == 0
}
