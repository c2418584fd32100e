package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Delivery is a message on its way.
type Delivery struct {
	// ID is the store's number of the message. Ids grow within a group.
	ID int64
	Message
	// Shard is the part of the outbox that the message was read from.
	Shard Shard
	// Tries is how often the message was sent before.
	Tries int
	// Enqueued is when the message was enqueued, by the store's clock, and Age how
	// long ago that was when it was read.
	Enqueued time.Time
	Age      time.Duration
	// Err says that the message cannot be read. Then only ID, Shard and, where the
	// store has it, Group are set.
	Err error

	readAt time.Time // when the worker began to read it, by its own clock
}

// A Shard is a part of the outbox that a worker has leased. The epoch is the fence: it
// grows each time the shard changes hands, and only with the latest one can a message of
// the shard be acknowledged.
type Shard struct {
	N     int
	Epoch int64
}

// A Lease is the set of shards that a worker has leased.
type Lease struct {
	Shards []Shard
	// Workers is how many workers share the outbox, this one included.
	Workers int
}

// An AckKind is the kind of an acknowledgement.
type AckKind uint8

const (
	// AckDelivered: the receiver has the message, and the store deletes it. With
	// [Ack.Keep] its receipt stays.
	AckDelivered AckKind = iota + 1
	// AckRetry: the message is to be sent again after [Ack.After]. Its group waits
	// for it.
	AckRetry
	// AckDead: the message becomes a dead letter, and its group goes on.
	AckDead
)

// An Ack acknowledges one delivery.
type Ack struct {
	ID    int64
	Shard Shard
	Group string
	Kind  AckKind
	// Tries is how often the message was sent, this delivery included: [Delivery.Tries]
	// plus one. A store keeps the larger of it and its own count, so an Ack that is
	// stored twice, because its reply was lost, counts once.
	Tries int
	After time.Duration
	// Why is the error of the last try, and ProviderRef the receiver's own name
	// for the effect, if it gave one.
	Why         string
	ProviderRef string
	// Settle, if not nil, is swapped in the same step, as [retrysafe.Swapper] does.
	Settle *retrysafe.Write
	// Keep, if above zero, is how long a receipt of a delivered message is kept, counted
	// from this step, which stores it: see [ReceiptKeeper]. Message is the message then.
	Keep    time.Duration
	Message *Message
}

// An AckResult is the result of one acknowledgement.
type AckResult struct {
	// Err is nil, [ErrFenced], or the error of the record's swap. If it is not nil the
	// message is unchanged.
	Err error
	// Record is the key's record as it is now, if there was one to settle.
	Record retrysafe.Record
}

// ErrFenced says that another worker has leased the shard. Nothing was changed.
var ErrFenced = errors.New("outbox: the shard has another worker now")

// A Store keeps messages. All methods may be called concurrently. Each is one
// atomic step, by the store's clock alone.
type Store interface {
	// Lease leases shards to a worker for term, and renews those that the worker
	// holds. It never takes a shard from another worker before that worker's term has
	// ended. The worker gets its fair share at most, and loses what is beyond it: with
	// three workers that is a third of [Shards], rounded up. A term of zero gives all
	// shards back.
	Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (Lease, error)
	// Due returns messages of the shards that are due, at most limit, in the order of
	// their ids within each group, and none of a group whose first message waits to be
	// sent again. It finds every message that is committed, however late that was.
	Due(ctx context.Context, shards []Shard, limit int) ([]Delivery, error)
	// Ack stores acknowledgements, all in one step but each by itself: one that is
	// refused does not touch the others, and its [AckResult] says why. An error that Ack
	// itself returns means "cannot say": the step may have been applied.
	Ack(ctx context.Context, acks []Ack) ([]AckResult, error)
	// DeadLetters returns dead letters with ids above after, in the order of their ids.
	DeadLetters(ctx context.Context, after int64, limit int) ([]DeadLetter, error)
	// Dispose redrives or drops a dead letter, if its revision is still the given one,
	// and else returns [retrysafe.ErrConflict].
	Dispose(ctx context.Context, d Disposal) error
}

// A QuickReader is a store that has a cheaper read than [Store.Due], which finds some of
// what is due. A worker reads with it while messages come, and with Due what it leaves.
type QuickReader interface {
	// DueExcept returns messages that are due, the oldest first, at most limit, without
	// those that known names. It may leave out messages that Due returns, and reports
	// by all whether it has left out none. Of a group it leaves out none before one that
	// it returns: each message of the group that is committed and has a lower id is in
	// the list or in known. Like Due it returns none of a group whose first message waits
	// to be sent again.
	DueExcept(ctx context.Context, shards []Shard, known []int64, limit int) (list []Delivery, all bool, err error)
}

// A CommitNotifier is a store that says when messages were committed by it: those of
// transactions that the store itself has begun. A worker then reads them at once.
type CommitNotifier interface {
	// NotifyCommits lets the store call wake after each commit, in this process, of a
	// transaction with messages, until stop is called. Wake returns at once.
	NotifyCommits(wake func()) (stop func())
}

// A DeadLetter is a dead letter: a message that is not sent any more. It is kept until an
// operator disposes of it.
type DeadLetter struct {
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
	// Redrive sends the message again, behind all others of its group. Otherwise it is
	// dropped.
	Redrive bool
	// ResetAge counts the age of a message that is sent again from now: the operator
	// vouches that the receiver has not had it, or will recognise it. Otherwise the
	// message keeps its age.
	ResetAge bool
}

// A Depth is how many messages an outbox has, and for how long.
type Depth struct {
	Waiting, Dead int
	// Oldest is for how long the oldest message that is due has waited.
	Oldest time.Duration
	// OldestDead is for how long the oldest dead letter has been one.
	OldestDead time.Duration
}

// A DepthReporter is a store that reports its depth. Counting may be expensive; it is for
// metrics, consoles and back-pressure.
type DepthReporter interface {
	Depth(ctx context.Context) (Depth, error)
}
