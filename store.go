package retrysafe

import (
	"context"
	"time"
)

// A Swapper replaces a record by compare-and-swap. A [Store] is one, and so is
// a transaction of the caller's.
type Swapper interface {
	// Swap replaces the stored record if both its Revision and its Owner are
	// still r's, and returns the record as stored. Otherwise nothing changes, and
	// it returns the stored record and ErrConflict, or ErrNotFound if there is
	// none.
	//
	// Without a Claim it is a step of the present attempt: Operation,
	// Fingerprint, KeyText, Request, Attempt and CreatedAt stay as stored,
	// whatever r holds, and a zero Checkpoint keeps the stored one. All else is
	// r's, Version included.
	//
	// With a Claim it starts a new attempt: everything but Ref is r's, the Owner
	// becomes r.Claim, and when r.Attempt is 1 a new generation begins, with
	// CreatedAt the store's now.
	//
	// In both cases Deadline is the store's clock plus r.Term and Revision grows.
	// [ErrUnreadable] says that what is stored cannot be read, not whether the
	// step was applied.
	Swap(ctx context.Context, r Record) (Record, error)
}

// Swapped returns the record that a Swap of r leaves behind where it meets
// stored, at the store's now, for stores that read before they write. It is what
// [Swapper] promises, but for Revision, Deadline and UpdatedAt: those are the
// store's to set.
func Swapped(stored, r *Record, now time.Time) Record {
	next := *r
	next.Ref, next.CreatedAt = stored.Ref, stored.CreatedAt
	if !r.Claim.IsZero() {
		next.Owner = r.Claim
		if r.Attempt == 1 {
			next.CreatedAt = now
		}
		return next
	}
	next.Operation, next.Fingerprint, next.KeyText = stored.Operation, stored.Fingerprint, stored.KeyText
	next.Request, next.Attempt = stored.Request, stored.Attempt
	if r.Checkpoint.IsZero() {
		next.Checkpoint = stored.Checkpoint
	}
	return next
}

// A Store keeps records. It stores, the engine decides.
//
// All methods may be called concurrently. Each is one atomic step: it happens
// whole or not at all, and once it has returned nil it survives whatever the
// store's guarantee class says; one whose record is [Record.Relaxed] may be lost
// by a crash of the store's server until a later step that is not relaxed returns.
// A store may ignore that. An error other than the sentinels means "cannot
// say": the step may have been applied. A store may keep the slices it is given;
// what it returns must not be changed by the caller. It honours ctx's deadline, and
// uses ctx no longer than the step lasts.
type Store interface {
	// Create inserts r if its Ref is not there, and returns the record as stored.
	// Otherwise nothing is written, and it returns the stored record with
	// ErrExists, or with nil if the stored record's Owner is r's: the same step
	// was sent twice. ErrBusy: an open transaction holds the key. ErrFull: no room.
	Create(ctx context.Context, r Record) (Record, error)
	Swapper
	// Load returns the record, or ErrNotFound.
	Load(ctx context.Context, ref Ref) (Record, error)
	// List returns records that match q, in an order of the store's own that is
	// the same for every call, so that [Query.After] pages through them. A record
	// that cannot be read does not hide the others: it is listed with Version 0
	// and a Ref that only this store understands.
	List(ctx context.Context, q Query) ([]Record, error)
	// Purge deletes at most limit records that are due and [State.Forgettable],
	// and returns how many. It never deletes any other.
	Purge(ctx context.Context, limit int) (int, error)
}

// A Query selects records. The zero Query selects all.
type Query struct {
	// Scope, if not empty, selects the records of one scope.
	Scope string
	// States, if any, selects records in one of these states.
	States []State
	// Due selects records whose deadline has passed by the store's clock.
	Due bool
	// After continues behind this Ref, the last one of the page before.
	After Ref
	// Limit bounds how many are returned; zero means 100.
	Limit int
}

// MaxList is the most records that one List returns.
const MaxList = 10_000

// Size returns how many records the query may return.
func (q Query) Size() int {
	if q.Limit <= 0 {
		return 100
	}
	return min(q.Limit, MaxList)
}

// Matches reports whether the query selects r, paging aside, judged by r.ReadAt.
func (q Query) Matches(r *Record) bool {
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

// A Tx is one transaction of the caller's, joined by a store that shares its
// database. It is not safe for concurrent use.
type Tx interface {
	// Reserve takes the key for the length of the transaction without waiting
	// and returns the record if there is one. ErrNotFound: the key is free and
	// held now. ErrBusy: another transaction holds it. Who gets the key sees
	// everything that the transactions which held it before have committed, and
	// none of them commits any more: [DoTx] finds out by it how a commit ended.
	Reserve(ctx context.Context, ref Ref) (Record, error)
	// Create inserts r. If the key exists the transaction is poisoned and cannot
	// commit.
	Create(ctx context.Context, r Record) (Record, error)
	Swapper
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// A Counter is a store that can say how many records a scope holds. It is
// optional; a cap on a tenant's keys needs it.
type Counter interface {
	Count(ctx context.Context, scope string) (int, error)
}
