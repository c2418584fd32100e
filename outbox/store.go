package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Delivery is a message on its way.
type Delivery struct {
	// ID is the store's number of the message. Within a group they grow.
	ID int64
	Message
	// Shard is the part of the outbox that it was read from.
	Shard Shard
	// Tries is how often it was sent before.
	Tries int
	// Enqueued is when, by the store's clock, and Age how long before it was read.
	Enqueued time.Time
	Age      time.Duration
	// Err says that the message cannot be read; then all else but ID, Shard and,
	// where the store has it, Group is missing.
	Err error
}

// A Shard is a part of the outbox that a worker holds. The epoch is the fence:
// each worker that takes the shard has another, and only with the present one can
// a message of it be ended.
type Shard struct {
	N     int
	Epoch int64
}

// A Holding is what a worker holds.
type Holding struct {
	Shards []Shard
	// Workers is how many hold or want any, this one included.
	Workers int
}

// A Fate is what became of a delivery.
type Fate uint8

const (
	// Delivered: the receiver has it, and the message is forgotten.
	Delivered Fate = iota + 1
	// Again: it is to be sent again after [Ending.After]. Its group waits for it.
	Again
	// Buried: it is a dead letter, and its group goes on.
	Buried
)

// An Ending is what a worker says of one delivery.
type Ending struct {
	ID    int64
	Shard Shard
	Group string
	Fate  Fate
	After time.Duration
	// Why is the error of the last try, and ProviderRef the receiver's own name
	// for the effect, if it gave one.
	Why         string
	ProviderRef string
	// Settle, if not nil, is swapped in the same step, as [retrysafe.Swapper] does.
	Settle *retrysafe.Write
}

// An Ended says what became of an ending.
type Ended struct {
	// Err is nil, ErrFenced, or what the swap of the record came to; if it is not
	// nil the message is as it was.
	Err error
	// Record is the key's record as it is now, if there was one to settle.
	Record retrysafe.Record
}

// ErrFenced says that the shard has another worker now. Nothing was changed.
var ErrFenced = errors.New("outbox: the shard has another worker now")

// A Store keeps messages. All methods may be called concurrently. Each is one
// atomic step, by the store's clock alone.
type Store interface {
	// Lease takes shards for a worker, for as long as term, and renews those that
	// it holds. It never takes one whose holder's term has not ended. It takes its
	// fair share at most, and gives up what is beyond it: with three workers that
	// is a third of [Shards], rounded up. A term of zero gives all back.
	Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (Holding, error)
	// Due returns messages of the shards whose time has come, at most limit, in
	// the order of their ids within each group, and none of a group whose first
	// message waits to be sent again. It finds every message that is committed,
	// however late that was.
	Due(ctx context.Context, shards []Shard, limit int) ([]Delivery, error)
	// End ends deliveries, all in one step but each by itself: one that is refused
	// does not touch the others. An error other than those in Ended means "cannot
	// say": the step may have been applied.
	End(ctx context.Context, endings []Ending) ([]Ended, error)
	// Dead returns dead letters with ids above after, in the order of their ids.
	Dead(ctx context.Context, after int64, limit int) ([]Letter, error)
	// Dispose does with a dead letter what an operator has decided, if it is still
	// as it was then, and else returns [retrysafe.ErrConflict].
	Dispose(ctx context.Context, d Disposal) error
}

// A Letter is a dead letter: a message that was given up. It is kept until an
// operator disposes of it.
type Letter struct {
	Delivery
	// Why is the error of the last try.
	Why         string
	ProviderRef string
	Died        time.Time
	// Revision grows whenever anything about the letter changes.
	Revision int64
}

// A Disposal is what an operator does with a dead letter.
type Disposal struct {
	ID       int64
	Revision int64 // of the letter that the operator saw
	// Redrive sends it again, behind all others of its group. Otherwise it is
	// dropped.
	Redrive bool
	// Anew counts the age of a letter that is sent again from now: somebody vouches
	// that its receiver has not had it, or will recognise it. Otherwise it is as old
	// as it was.
	Anew bool
}

// A Depth is how much waits in an outbox.
type Depth struct {
	Waiting, Dead int
	// Oldest is how long the oldest message that could be sent has waited.
	Oldest time.Duration
	// OldestDead is how long the oldest dead letter has been one.
	OldestDead time.Duration
}

// A Gauge is a store that can say how much waits in it. Counting may cost; it is
// for metrics and consoles.
type Gauge interface {
	Depth(ctx context.Context) (Depth, error)
}
