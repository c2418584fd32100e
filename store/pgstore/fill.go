package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a store does that records move into, for package move.

// Fill closes the store until [Store.Filled]: whatever process asks for a key gets
// [ErrFilling]. It must be empty, or be filled from the same source already: then
// what is there is thrown away, and whoever filled it before does no longer. From is
// how people call the source.
func (s *Store) Fill(ctx context.Context, by, source retrysafe.Owner, from string) error {
	next := storemove.Note{Part: storemove.Filling, Run: by, Source: source, Peer: from}
	err := s.alone(ctx, "fill", lockKeys, func(ctx context.Context, tx moving) error {
		some := false
		if err := tx.QueryRow(ctx, s.moveSQL(existsKeys)).Scan(&some); err != nil {
			return err
		}
		switch {
		case tx.note.Part == storemove.Followed:
			return storemove.ErrLeaving
		case some:
			return ErrNotEmpty
		}
		if err := s.script(ctx, tx, s.moveSQL(hideKeys)); err != nil {
			return err
		}
		return s.writeNote(ctx, tx, next)
	})
	if !errors.Is(err, ErrFilling) {
		return err
	}
	return s.filling(ctx, "fill", lockFilling, func(ctx context.Context, tx moving) error {
		if tx.note.Source != source {
			return tx.note.Closed()
		}
		if err := s.script(ctx, tx, s.moveSQL(emptyFilling)); err != nil {
			return err
		}
		return s.writeNote(ctx, tx, next)
	})
}

// filling does a step on a store that is being filled.
func (s *Store) filling(ctx context.Context, verb, lock string, do func(ctx context.Context, tx moving) error) error {
	err := s.alone(ctx, verb, lock, do)
	if isCode(err, "42P01") {
		return fmt.Errorf("%s: %w", verb, ErrOvertaken)
	}
	return err
}

// Import stores records as they are, in place of what is there of the same keys, and
// forgets those that are gone. Owners, attempts, answers and times stay what they
// were, and so do revisions unless this store's clock is behind; of the time until a
// deadline as much is left as was when the record was read. [ErrOvertaken]: somebody
// else fills the store, or nobody does.
func (s *Store) Import(ctx context.Context, by retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	all, err := columnsOf(records)
	if err != nil {
		return err
	}
	return s.filling(ctx, "import", useFilling, func(ctx context.Context, tx moving) error {
		if !tx.filledBy(by) {
			return ErrOvertaken
		}
		if len(gone) > 0 {
			ids := make([]string, len(gone))
			for i, ref := range gone {
				ids[i] = idOf(ref).text()
			}
			if _, err := tx.Exec(ctx, s.moveSQL(forgetKeys), ids); err != nil {
				return err
			}
		}
		if len(records) == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, s.moveSQL(importKeys), all...)
		return err
	})
}

// columnsOf are the parameters of an import.
func columnsOf(records []retrysafe.Record) ([]any, error) {
	n := len(records)
	ids, owners := make([]string, n), make([]string, n)
	created, revisions, remains := make([]int64, n), make([]int64, n), make([]int64, n)
	keeps, states := make([]int32, n), make([]int16, n)
	tails, checkpoints, heads := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i := range records {
		r := records[i]
		if !r.State.Valid() {
			return nil, fmt.Errorf("import: %q has no state", r.Key)
		}
		r.Term = r.Deadline.Sub(r.ReadAt)
		k := idOf(r.Ref)
		ids[i], owners[i] = k.text(), id(r.Owner).text()
		created[i], revisions[i], remains[i] = r.CreatedAt.UnixMicro(), r.Revision, termOf(&r)
		keeps[i], states[i] = keepOf(&r), int16(r.State)
		tails[i], checkpoints[i], heads[i] = appendTail(nil, &r), checkpointArg(&r), appendHead(nil, k, &r)
	}
	return []any{ids, owners, created, keeps, revisions, remains, tails, states, checkpoints, heads}, nil
}

// Filled opens the store: all records are there.
func (s *Store) Filled(ctx context.Context, by retrysafe.Owner) error {
	return s.reopen(ctx, "open what was filled", by, showKeys+";\n"+dropNote)
}

// Unfill throws away what was imported and opens the store as it was.
func (s *Store) Unfill(ctx context.Context, by retrysafe.Owner) error {
	return s.reopen(ctx, "empty what was filled", by, emptyFilling+";\n"+showKeys+";\n"+dropNote)
}

func (s *Store) reopen(ctx context.Context, verb string, by retrysafe.Owner, statements string) error {
	return s.filling(ctx, verb, lockFilling, func(ctx context.Context, tx moving) error {
		if !tx.filledBy(by) {
			return ErrOvertaken
		}
		return s.script(ctx, tx, s.moveSQL(statements))
	})
}

// Filling returns which run of a move fills the store; zero: none does.
func (s *Store) Filling(ctx context.Context) (by retrysafe.Owner, err error) {
	n, err := s.readNote(ctx, s.pool)
	if err != nil || n.Part != storemove.Filling {
		return retrysafe.Owner{}, explain(err)
	}
	return n.Run, nil
}
