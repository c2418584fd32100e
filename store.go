package retrysafe

import (
	"context"
	"time"
)

// A Write is one change of a store: the record to be stored, what it replaces, and
// until when it holds.
//
// The engine says how long, the store says until when and what time it is: the
// record's Deadline becomes the store's clock plus Term.
type Write struct {
	// Record is what is to be stored. Its Owner is the owner from then on.
	Record
	// Expect is what must be stored for a swap to happen. Create does not look at it.
	Expect Fence
	// Term is how long after this write the record is due.
	Term time.Duration
	// Overwrite says that a swap replaces the whole record, the owner included, as one
	// that starts a new attempt does. Without it the swap continues the present attempt
	// and leaves alone what belongs to that; see [Swapper].
	Overwrite bool
	// SetCheckpoint says that the record's Checkpoint replaces the stored one. Without
	// it a write of the same attempt keeps the stored one, so that a heartbeat
	// rewrites nothing large.
	SetCheckpoint bool
	// Relaxed says that a crash of the store's server may lose this write; a later one
	// that is not relaxed makes it durable. A store may ignore it. See
	// [Policy.AsyncReserve].
	Relaxed bool
	// Announce says that caches on other nodes must drop their copy of the record: a
	// swap that changes an answer which was given before sets it, as an operator's does.
	// A [ChangeFeed] lists the key. Only [Store] looks at it, and only in a Swap.
	Announce bool
}

// A Fence identifies one version of a record. No two versions of any record have the
// same one, also if the key was purged and created again, or the store's clock was set
// back. A revision is above zero and grows with each write of its key.
type Fence struct {
	Revision int64
	Owner    Owner
}

// A Swapper replaces a record by compare-and-swap. A [Store] is one, and so is
// a transaction of the caller's.
type Swapper interface {
	// Swap replaces the stored record if its revision and owner are w.Expect, and
	// returns the record as stored. Otherwise nothing changes, and it returns the
	// stored record and ErrConflict, or ErrNotFound if there is none.
	//
	// Without w.Overwrite the write continues the present attempt: Owner, Operation,
	// Fingerprint, KeyText, Request, Attempt and CreatedAt stay as stored, whatever w
	// holds, and so does the Checkpoint unless w.SetCheckpoint. All else is w's,
	// Version included.
	//
	// With w.Overwrite everything but Ref is w's. When w.Attempt is 1 a new generation
	// begins, with CreatedAt the store's now.
	//
	// In both cases Deadline is the store's clock plus w.Term and Revision grows.
	// [ErrUnreadable] says that what is stored cannot be read, not whether the
	// write was applied.
	Swap(ctx context.Context, w Write) (Record, error)
}

// A Store keeps records. It stores, the engine decides.
//
// All methods may be called concurrently. Each is one atomic step: it happens
// whole or not at all, and once it has returned nil it survives whatever the
// store's guarantee class says. The sentinels may be wrapped. An error other than the
// sentinels means "cannot say": the step may have been applied. A store may keep the
// slices it is given; what it returns must not be changed by the caller.
//
// A step returns when ctx ends, also while it waits for a lock. The caller reuses ctx
// after that, so work that goes on in another goroutine must not use it; [DeadlineOnly]
// tells what a store may rely on.
//
// A record whose bytes cannot be read is [ErrUnreadable] to Create, Load and Swap, never
// ErrNotFound. One of a newer Version whose bytes can be read is returned as it is: the
// engine refuses it.
//
// What else a store can do it says by implementing [Counter], [Sealer], [Forgetter],
// [ChangeFeed] or [TxStore], and its transactions by [CreateCommitter] or [Taker].
type Store interface {
	// Create inserts w's record if its Ref is not there, and returns the record as
	// stored: CreatedAt and UpdatedAt are the store's now, Deadline is now plus w.Term.
	// Otherwise nothing is written, and it returns the stored record with ErrExists,
	// or with nil if the stored record's Owner is w's and not zero: the same step was
	// sent twice. ErrBusy: an open transaction holds the key, and no record is visible
	// yet; Create does not wait for it. ErrFull: no room.
	Create(ctx context.Context, w Write) (Record, error)
	Swapper
	// Load returns the record, or ErrNotFound.
	Load(ctx context.Context, ref Ref) (Record, error)
	// List returns records that match q, in an order of the store's own that is
	// the same for every call, so that [Query.After] pages through them, and at most
	// [Query.Size] of them. A record that cannot be read does not hide the others: it
	// is listed with Version 0 and a Ref of the store's own, which Query.After takes. A
	// query with a Scope may leave it out; one by States or Due goes by what the store
	// still knows of it, and shows it if that is nothing.
	List(ctx context.Context, q Query) ([]Record, error)
	// Purge deletes at most limit records that are due and [State.Forgettable],
	// and returns how many. It never deletes any other: a record that cannot be read
	// stays, unless the store keeps state and deadline apart from what is damaged. What
	// a store has beside records and keeps for a time, such as receipts of an outbox, is
	// deleted after the records that are due, and counted with them.
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
	// Limit bounds how many are returned; zero or less means 100, and more than
	// [MaxList] means MaxList. See [Query.Size].
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

// A Tx is one transaction of the caller's, joined by a store that shares its
// database. It is not safe for concurrent use.
type Tx interface {
	// Reserve takes the key for the length of the transaction without waiting for
	// another transaction that holds the key, and returns the record if there is one.
	// ErrTxDone, of this and the other steps: the caller has ended the transaction before.
	// ErrNotFound: the key is free and held now. ErrUnreadable: it is held, and its
	// record cannot be read. ErrBusy: another transaction holds it. A store with one
	// writer may wait for the end of a transaction on another key.
	//
	// A transaction that gets the key sees everything that the transactions which held it
	// before have committed, and none of them commits any more: [DoTx] finds out by it how
	// a commit ended.
	Reserve(ctx context.Context, ref Ref) (Record, error)
	// Create inserts w's record. If the key exists it returns an error, also if the
	// stored owner is w's: the transaction would carry the business write twice.
	//
	// A Create or Swap that returns an error poisons the transaction: it cannot commit.
	Create(ctx context.Context, w Write) (Record, error)
	Swapper
	// Commit returns nil only if everything is committed. A transaction that is
	// poisoned or has ended returns an error of the store's choice. Ctx never cancels a
	// commit that has begun: if it ends, Commit may return an error that means "cannot
	// say".
	Commit(ctx context.Context) error
	// Rollback drops everything, also if ctx has ended. If the caller has ended the
	// transaction before, in a way that may have been a commit, it changes nothing and
	// returns ErrTxDone.
	Rollback(ctx context.Context) error
}

// A TxStore is a [Store] that can begin a transaction that it shares with its
// caller. T is the driver's own: pgx.Tx, *sql.Tx. If the driver's begin would wait for
// another writer, T may be a type of the store's that begins with its first step.
type TxStore[T any] interface {
	Store
	// BeginTx begins a transaction and returns it as the store knows it and as
	// the driver does. It may be called concurrently, and does not wait for any
	// key. Ctx lives until the transaction has ended. Should it end before, the
	// transaction may be rolled back: its steps then fail with an error that is not
	// ErrTxDone, and Rollback returns nil.
	BeginTx(ctx context.Context) (Tx, T, error)
}

// A CreateCommitter is a [Tx] that can insert a record and commit in one round trip.
// It is optional; [DoTx] uses it.
type CreateCommitter interface {
	// CreateAndCommit is Create and then Commit. After ErrExists, ErrBusy or ErrTxDone
	// it has committed nothing, for certain; after any other error the outcome is
	// unknown. In a transaction that has ended before it stores nothing.
	CreateAndCommit(ctx context.Context, w Write) (Record, error)
}

// A Taker is a [Tx] that takes a key for less than Reserve does. It is optional; [DoTx]
// uses it.
type Taker interface {
	// Take is Reserve, except that the record which it returns, or its absence, may be that
	// of a moment before it took the key: a transaction that held the key before may have
	// committed in that moment. So what it returns proves nothing about an earlier
	// transaction. Create, Swap and CreateAndCommit go by what is stored: they refuse the
	// caller that was told otherwise, and its transaction with it.
	Take(ctx context.Context, ref Ref) (Record, error)
}

// A Counter is a store that can say how many records a scope holds. It is
// optional; a cap on a tenant's keys needs it.
type Counter interface {
	// Count returns the number of records in the scope of exactly that name, in every
	// state. The empty scope is a scope like others, not all of them.
	Count(ctx context.Context, scope string) (int, error)
}

// A Sealer is a store that may keep what it is given encrypted. It is optional; a
// store without it keeps plaintext.
type Sealer interface {
	// Sealed reports whether what the store keeps is encrypted.
	Sealed() bool
}

// A Forgetter is a store that keeps copies of records in memory. It is optional; an
// operator's action calls it, so that a change is seen at once.
type Forgetter interface {
	// Forget drops the copy of one record.
	Forget(ref Ref)
}

// A ChangeFeed is a store that tells which records were changed by writes with
// [Write.Announce], on any node. It is optional; a cache follows it. Without it a cache
// on another node returns an old answer until it reads the record again.
type ChangeFeed interface {
	// Changes returns the keys of the announced writes that were committed after the
	// cursor, and the cursor to continue from. If there are none it waits for one, for up
	// to half a second, and returns none. A key may be returned more than once.
	//
	// The empty cursor is the present: Changes returns no keys then, and does not wait.
	// Every write that commits later is after the cursor that it returns.
	//
	// ErrChangesLost: what was changed after the cursor is not known any more.
	// [errors.ErrUnsupported]: this store cannot tell, and will not be able to.
	Changes(ctx context.Context, cursor string) (changed []Ref, next string, err error)
}
