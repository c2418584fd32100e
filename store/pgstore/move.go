package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a step returns on a store that a move has closed. The errors are the same for
// all stores.
var (
	// ErrMoved says that the records were moved to another store.
	ErrMoved = storemove.ErrMoved
	// ErrFilling says that records are being moved into the store, and that some may
	// still be missing.
	ErrFilling = storemove.ErrFilling
)

// Mover returns the store as "retrysafe keys copy" needs it, to move records out of it
// or into it. A program that uses the store needs none of it. The steps of a move change
// the schema, and need the rights of the tables' owner.
func (s *Store) Mover() storemove.Store { return &mover{s} }

var _ storemove.Store = (*mover)(nil)

// mover is a store in a move.
type mover struct{ s *Store }

// readNote reads the store's part in a move. The zero note: it has none.
func (s *Store) readNote(ctx context.Context, db querier) (n storemove.Note, err error) {
	exists := false
	if err := db.QueryRow(ctx, s.moveSQL.existsNote.sql, s.schema).Scan(&exists); err != nil || !exists {
		return storemove.Note{}, err
	}
	var at int64
	err = db.QueryRow(ctx, s.moveSQL.selectNote.sql).Scan(&n.Part, (*[16]byte)(&n.Run), (*[16]byte)(&n.Source), &n.Peer, &at)
	if err != nil {
		return storemove.Note{}, fmt.Errorf("read the note of a move: %w", err)
	}
	n.At = fromMicros(at)
	return n, nil
}

func (m *mover) writeNote(ctx context.Context, tx pgx.Tx, n storemove.Note) error {
	sql := &m.s.moveSQL
	if err := m.exec(ctx, tx, &sql.createNote); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, sql.insertNote.sql, int16(n.Part), id(n.Run).text(), id(n.Source).text(), n.Peer)
	return err
}

// exec runs statements without parameters, in one round trip.
func (m *mover) exec(ctx context.Context, tx pgx.Tx, statements ...*statement) error {
	all := make([]string, len(statements))
	for i, st := range statements {
		all[i] = st.sql
	}
	return m.script(ctx, tx, strings.Join(all, ";\n"))
}

func (*mover) script(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if isCode(err, "42501") {
		return &hintedError{err, "a move changes the schema; run it as the owner of the tables"}
	}
	return err
}
