package storemove

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

// A Store is a store that records can be moved out of and into. A store returns it
// from a method Mover, so that what only the move needs is not among the store's own
// methods.
type Store interface {
	Source
	Destination
}

// A Source is a store whose records can be moved away. Each method is atomic, its
// effect is durable when it returns, and holds for every process that uses the store.
//
// A run of the move is identified by a nonce. A method called for a run that another
// run has replaced returns [ErrOvertaken] and changes nothing.
type Source interface {
	// Follow waits for the transactions that are writing, and makes the store log every
	// key that is written from then on. It returns the store's identity, which never
	// changes. A run that followed the store before is replaced. Follow fails if the
	// store is closed, or if its outbox holds messages.
	Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error)
	// Written takes at most limit keys from the log. It returns their records as they
	// are now, and the keys whose records are deleted. It returns
	// [retrysafe.ErrUnreadable] if one of the records cannot be read.
	Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error)
	// Unfollow ends the log that Follow began.
	Unfollow(ctx context.Context, run retrysafe.Owner) error
	// Retire locks out all writers, and calls rest with what Written would return until
	// the log is empty and rest was called with nothing. If every call returned nil, it
	// closes the store for good: each later step is told that the store was moved to
	// to. If Retire fails before it called rest, or because rest returned an error, the
	// store stays open. After any other error the outcome is unknown.
	Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error
	// Retired returns the run that has retired the store, or the zero Owner.
	Retired(ctx context.Context) (run retrysafe.Owner, err error)
}

// A Destination is a store that records can be moved into. Its methods keep the same
// promises as those of a [Source].
type Destination interface {
	// Fill closes the store until Filled or Unfill. It fails unless the store holds no
	// record but that of [deployment.Ref], or is already being filled from the
	// same source. In the latter case it deletes what was imported, and the run that
	// filled the store before is replaced.
	Fill(ctx context.Context, run, source retrysafe.Owner, from string) error
	// Import stores records unchanged, over any that the store has of the same keys, and
	// deletes the keys in gone. Each deadline is as far away by the store's clock as it
	// was by the source's when the record was read.
	Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error
	// Filled opens the store with the records that were imported.
	Filled(ctx context.Context, run retrysafe.Owner) error
	// Unfill deletes what was imported, and opens the store.
	Unfill(ctx context.Context, run retrysafe.Owner) error
	// Filling returns the run that fills the store, or the zero Owner.
	Filling(ctx context.Context) (run retrysafe.Owner, err error)
}

// A Lister is a [Source] without a log of what is written: it compares what it has with what
// was copied, and so has to know that. A move lists the records by it.
type Lister interface {
	// List is that of [retrysafe.Store]. The move copies what it returns.
	List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error)
}
