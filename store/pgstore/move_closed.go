package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// closedBy returns ErrMoved or ErrFilling if a move has closed the store and err says
// that a table is not there. Otherwise it returns err. It does not wrap err: no request
// of a batch is worth sending alone.
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

// locateClosed finds out in which schema a closed store is. Only a store that is opened
// for a move may be closed.
func (s *Store) locateClosed(ctx context.Context, o Options) error {
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
