package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a step says of a store that a move has closed, and a move of a store that it
// cannot have. See package move. They are the same for all stores.
var (
	// ErrMoved says that the records are in another store, for good.
	ErrMoved = storemove.ErrMoved
	// ErrFilling says that records are being moved here, and not all may be there.
	ErrFilling = storemove.ErrFilling
	// ErrOvertaken says that another run of the move has begun since.
	ErrOvertaken = storemove.ErrOvertaken
	// ErrNotEmpty says that a store to be filled holds records of its own.
	ErrNotEmpty = storemove.ErrNotEmpty
	// ErrUndelivered says that the outbox is not empty; its messages do not move.
	ErrUndelivered = storemove.ErrUndelivered
)

func readNote(ctx context.Context, db execer) (n storemove.Note, err error) {
	there := false
	if err := db.QueryRowContext(ctx, existsNote).Scan(&there); err != nil || !there {
		return storemove.Note{}, err
	}
	var run, source []byte
	var at int64
	if err := db.QueryRowContext(ctx, selectNote).Scan(&n.Part, &run, &source, &n.Peer, &at); err != nil {
		return storemove.Note{}, fmt.Errorf("read the note of a move: %w", err)
	}
	copy(n.Run[:], run)
	copy(n.Source[:], source)
	n.At = time.UnixMicro(at).UTC()
	return n, nil
}

func writeNote(ctx context.Context, tx execer, n storemove.Note) error {
	return run(ctx, tx, []string{noteTable}, func() error {
		_, err := tx.ExecContext(ctx, insertNote, int64(n.Part), n.Run[:], n.Source[:], n.Peer, n.At.UnixMicro())
		return err
	})
}

// run runs statements, and then what follows.
func run(ctx context.Context, tx execer, statements []string, then func() error) error {
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return then()
}

// closed returns why nobody may use the store, or nil.
func (s *Store) closed(ctx context.Context) error {
	n, err := readNote(ctx, s.db)
	if err != nil {
		return nil //nolint:nilerr // it is the first error that counts
	}
	return n.Closed()
}

// prepare prepares what reads a key. Who moves records may open a store that is
// closed: until it is opened again, a read finds what its tables hold.
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

// alone does a step of a move: it has the write lock, and knows the note.
func (s *Store) alone(ctx context.Context, verb string, do func(ctx context.Context, tx execer, n storemove.Note) error) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	own := session{db: s.db, lend: true}
	if err := own.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error {
		n, err := readNote(ctx, tx)
		if err != nil {
			return err
		}
		return do(ctx, tx, n)
	}); err != nil {
		return fmt.Errorf("%s: %w", verb, s.explain(ctx, err))
	}
	return nil
}
