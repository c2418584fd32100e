package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

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

func (s *Store) readNote(ctx context.Context, db querier) (n storemove.Note, err error) {
	there := false
	if err := db.QueryRow(ctx, existsNote, s.schema).Scan(&there); err != nil || !there {
		return storemove.Note{}, err
	}
	var at int64
	err = db.QueryRow(ctx, s.moveSQL(selectNote)).Scan(&n.Part, (*[16]byte)(&n.Run), (*[16]byte)(&n.Source), &n.Peer, &at)
	if err != nil {
		return storemove.Note{}, fmt.Errorf("read the note of a move: %w", err)
	}
	n.At = fromMicros(at)
	return n, nil
}

func (s *Store) writeNote(ctx context.Context, tx pgx.Tx, n storemove.Note) error {
	if err := s.script(ctx, tx, s.moveSQL(noteTable)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.moveSQL(insertNote), int16(n.Part), id(n.Run).text(), id(n.Source).text(), n.Peer)
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
	if closed := n.Closed(); unread == nil && closed != nil {
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
	closed := n.Closed()
	switch {
	case closed == nil:
		return fmt.Errorf("table %s is not there; run the migrations", s.table)
	case !o.Moving:
		return closed
	}
	return nil
}
