package storemove

import (
	"context"

	"github.com/retrysafe/retrysafe"
)

// A Source is a store whose records can move away. Each step is atomic, durable when
// it returns, and holds for every process that uses the store. A run is named by a
// nonce; a step of one that was overtaken fails and changes nothing.
type Source interface {
	// Follow makes the store note every key that is written from now on, after it has
	// waited for those who are writing, and returns a name of the store's own that
	// never changes. Whoever followed it before does no longer. It fails if the store
	// is closed, or has messages that would be left behind.
	Follow(ctx context.Context, run retrysafe.Owner) (source retrysafe.Owner, err error)
	// Written returns at most limit keys that were written since and not returned
	// before: the records as they are when they are read, and the keys that are gone.
	// It fails with [retrysafe.ErrUnreadable] if one of them cannot be read.
	Written(ctx context.Context, run retrysafe.Owner, limit int) (written []retrysafe.Record, gone []retrysafe.Ref, err error)
	// Unfollow ends what Follow began.
	Unfollow(ctx context.Context, run retrysafe.Owner) error
	// Retire lets nobody write, and calls rest with what Written would return, until
	// that is nothing and rest was called with none. Only if all calls returned nil it
	// closes the store for good, and says to whoever asks that it was moved to to. An
	// error before rest was called, or from rest, means that the store serves on;
	// after another nobody can say.
	Retire(ctx context.Context, run retrysafe.Owner, to string, rest func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error) error
	// Retired returns which run has retired the store; zero: none.
	Retired(ctx context.Context) (run retrysafe.Owner, err error)
}

// A Destination is a store that records can move into. What is said of a [Source]
// holds for it too.
type Destination interface {
	// Fill closes the store until Filled. It fails unless the store holds no record,
	// or is being filled from the same source: then what is there is thrown away, and
	// whoever filled it before does no longer.
	Fill(ctx context.Context, run, source retrysafe.Owner, from string) error
	// Import stores records as they are, in place of what is there of the same keys,
	// with what was left of the time until their deadlines, and forgets those that are
	// gone.
	Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error
	// Filled opens the store.
	Filled(ctx context.Context, run retrysafe.Owner) error
	// Unfill opens it too, with nothing in it.
	Unfill(ctx context.Context, run retrysafe.Owner) error
	// Filling returns which run fills the store; zero: none.
	Filling(ctx context.Context) (run retrysafe.Owner, err error)
}
