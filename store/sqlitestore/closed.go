package sqlitestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A store that a move has closed has its tables under other names, so that no
// process finds them, however old it is and whatever it has prepared; a note says
// why. See package move.

// Why a store is closed. Every step gets one of these, and nothing runs.
var (
	// ErrMoved says that the records are in another store, for good.
	ErrMoved = errors.New("sqlitestore: this store was moved")
	// ErrFilling says that records are being moved here, and not all may be there.
	ErrFilling = errors.New("sqlitestore: this store is being filled")
)

// Why a move is refused.
var (
	// ErrOvertaken says that another run of the move has begun since.
	ErrOvertaken = errors.New("sqlitestore: another run has taken this move over")
	// ErrNotEmpty says that a store to be filled holds records of its own.
	ErrNotEmpty = errors.New("sqlitestore: this store holds records already; move into an empty one, another file")
	// ErrUndelivered says that the outbox is not empty; its messages do not move.
	ErrUndelivered = errors.New("sqlitestore: the outbox is not empty")
)

var errLeaving = errors.New("sqlitestore: the records of this store are being moved away; it cannot be filled")

// part is what a store is in a move.
type part int64

const (
	stays    part = iota + 1 // it was followed, and is not any more
	followed                 // records are copied from it while it serves
	moved                    // closed: they are in another store
	filling                  // closed: they come from another store
)

// note is what a move has made of this store. The zero note: nothing.
type note struct {
	part   part
	run    retrysafe.Owner // the run of the move that did it
	source retrysafe.Owner // the name of the store that records come from
	peer   string          // the other store, as people call it
	at     time.Time
}

// closed returns why nobody may use the store, or nil.
func (n *note) closed() error {
	at := n.at.Format("2006-01-02 15:04:05 MST")
	switch n.part { //nolint:exhaustive // the others serve
	case moved:
		return fmt.Errorf("%w to %s on %s; point the configuration there", ErrMoved, n.peer, at)
	case filling:
		return fmt.Errorf(`%w from %s, begun on %s; run the same "retrysafe keys copy" again to finish it`, ErrFilling, n.peer, at)
	}
	return nil
}

func readNote(ctx context.Context, db execer) (n note, err error) {
	there := false
	if err := db.QueryRowContext(ctx, existsNote).Scan(&there); err != nil || !there {
		return note{}, err
	}
	var run, source []byte
	var at int64
	if err := db.QueryRowContext(ctx, selectNote).Scan(&n.part, &run, &source, &n.peer, &at); err != nil {
		return note{}, fmt.Errorf("read the note of a move: %w", err)
	}
	copy(n.run[:], run)
	copy(n.source[:], source)
	n.at = time.UnixMicro(at).UTC()
	return n, nil
}

func writeNote(ctx context.Context, tx execer, n note) error {
	return run(ctx, tx, []string{noteTable}, func() error {
		_, err := tx.ExecContext(ctx, insertNote, int64(n.part), n.run[:], n.source[:], n.peer, n.at.UnixMicro())
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
	return n.closed()
}

// prepare prepares what reads a key. Who moves records may open a store that is
// closed: until it is opened again, a read finds what its tables hold.
func (s *Store) prepare(ctx context.Context, moving bool) (err error) {
	if s.reads, err = s.db.PrepareContext(ctx, selectKey); err == nil {
		return nil
	}
	n, unread := readNote(ctx, s.db)
	if closed := n.closed(); unread == nil && closed != nil {
		if !moving {
			return closed
		}
		s.reads, err = s.db.PrepareContext(ctx, selectClosed[n.part])
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: prepare: %w", s.explain(ctx, err))
	}
	return nil
}

// alone does a step of a move: it has the write lock, and knows the note.
func (s *Store) alone(ctx context.Context, verb string, do func(ctx context.Context, tx execer, n note) error) error {
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

func newName() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:]) // it never fails
	return o
}
