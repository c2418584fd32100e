package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

var _ storemove.Store = mover{}

// Mover is for "retrysafe keys copy", which moves the records of one store to another.
func (s *Store) Mover() storemove.Store { return mover{s} }

// mover moves records out of a store and into it.
type mover struct{ s *Store }

// tx runs do in a transaction that has the write lock, with the note that the store
// keeps of a move.
func (m mover) tx(ctx context.Context, verb string, do func(ctx context.Context, tx execer, n storemove.Note) error) error {
	m.s.writing.Lock()
	defer m.s.writing.Unlock()
	own := session{db: m.s.db, lend: true}
	if err := own.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error {
		n, err := readNote(ctx, tx)
		if err != nil {
			return err
		}
		return do(ctx, tx, n)
	}); err != nil {
		return fmt.Errorf("%s: %w", verb, m.s.explain(ctx, err))
	}
	return nil
}

// readNote reads the note of a move. A store that was never part of one has the zero
// note.
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
	if _, err := tx.ExecContext(ctx, noteTable); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, insertNote, int64(n.Part), n.Run[:], n.Source[:], n.Peer, n.At.UnixMicro())
	return err
}

func execAll(ctx context.Context, tx execer, statements ...string) error {
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
