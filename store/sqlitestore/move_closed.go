package sqlitestore

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// "retrysafe keys copy" moves the records of a store to another one, and closes stores
// for it. Every step on a closed store returns one of these errors, and nothing runs.
// They are the same for all kinds of stores.
var (
	// ErrMoved says that the records were moved to another store. The error's text names
	// it.
	ErrMoved = storemove.ErrMoved
	// ErrFilling says that records are being moved into this store, and that some may
	// still be missing.
	ErrFilling = storemove.ErrFilling
)

// closed returns why a move has closed the store, or nil.
func (s *Store) closed(ctx context.Context) error {
	n, err := readNote(ctx, s.db)
	if err != nil {
		return nil //nolint:nilerr // the caller reports the error that it explains
	}
	return n.Closed()
}

// prepare prepares the statement that reads a key. If moving is set it accepts a closed
// store too; until the store is opened again, a Load reads the renamed table.
func (s *Store) prepare(ctx context.Context, moving bool) (err error) {
	if s.reads, err = s.db.PrepareContext(ctx, selectKey); err == nil {
		return nil
	}
	n, unread := readNote(ctx, s.db)
	if closed := n.Closed(); unread == nil && closed != nil {
		if !moving {
			return closed
		}
		s.reads, err = s.db.PrepareContext(ctx, selectClosed[n.Part])
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: prepare: %w", s.explain(ctx, err))
	}
	return nil
}
