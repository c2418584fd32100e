package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
)

// A store that a move has closed has its tables under other names, so that no
// process finds them, however old it is and whatever it has prepared; a note says
// why. See package move.

// Why a store is closed. Every step gets one of these, and nothing runs.
var (
	// ErrMoved says that the records are in another store, for good.
	ErrMoved = errors.New("this store was moved")
	// ErrFilling says that records are being moved here, and not all may be there.
	ErrFilling = errors.New("this store is being filled")
)

// Why a move is refused.
var (
	// ErrOvertaken says that another run of the move has begun since.
	ErrOvertaken = errors.New("another run has taken this move over")
	// ErrNotEmpty says that a store to be filled holds records of its own.
	ErrNotEmpty = errors.New("this store holds records already; move into an empty one, another schema or database")
	// ErrUndelivered says that the outbox is not empty; its messages do not move.
	ErrUndelivered = errors.New("the outbox is not empty")
)

var errLeaving = errors.New("the records of this store are being moved away; it cannot be filled")

// part is what a store is in a move.
type part int16

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

func (s *Store) readNote(ctx context.Context, db querier) (n note, err error) {
	there := false
	if err := db.QueryRow(ctx, existsNote, s.schema).Scan(&there); err != nil || !there {
		return note{}, err
	}
	var at int64
	err = db.QueryRow(ctx, s.moveSQL(selectNote)).Scan(&n.part, (*[16]byte)(&n.run), (*[16]byte)(&n.source), &n.peer, &at)
	if err != nil {
		return note{}, fmt.Errorf("read the note of a move: %w", err)
	}
	n.at = fromMicros(at)
	return n, nil
}

func (s *Store) writeNote(ctx context.Context, tx pgx.Tx, n note) error {
	if err := s.script(ctx, tx, s.moveSQL(noteTable)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.moveSQL(insertNote), int16(n.part), id(n.run).text(), id(n.source).text(), n.peer)
	return err
}

// script runs statements that have no parameters.
func (s *Store) script(ctx context.Context, tx pgx.Tx, statements string) error {
	_, err := tx.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	if isCode(err, "42501") {
		return &hintedError{err, "a move changes the schema; run it as the owner of the tables"}
	}
	return err
}

// closedBy returns why nobody may use the store if that is what err is about. It
// does not wrap err: no member of a trip is worth trying alone.
func (s *Store) closedBy(err error) error {
	if !isCode(err, "42P01") {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	n, unread := s.readNote(ctx, s.pool)
	if closed := n.closed(); unread == nil && closed != nil {
		return closed
	}
	return err
}

// settleClosed finds out in which schema a closed store is. Only who moves records
// may open it.
func (s *Store) settleClosed(ctx context.Context, o Options) error {
	if err := s.locate(ctx, qualified(o.Schema, "retrysafe_move")); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("table %s is not there; run the migrations", s.table)
		}
		return err
	}
	n, err := s.readNote(ctx, s.pool)
	if err != nil {
		return err
	}
	closed := n.closed()
	switch {
	case closed == nil:
		return fmt.Errorf("table %s is not there; run the migrations", s.table)
	case !o.Moving:
		return closed
	}
	return nil
}

func newName() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:]) // it never fails
	return o
}
