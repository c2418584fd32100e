package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// Fill implements [storemove.Destination]. It closes the store by another name of its
// table.
func (m *mover) Fill(ctx context.Context, run, source retrysafe.Owner, from string) error {
	sql := &m.s.moveSQL
	next := storemove.Note{Part: storemove.Filling, Run: run, Source: source, Peer: from}
	err := m.do(ctx, "fill", &sql.lockKeys, func(ctx context.Context, tx moveTx) error {
		notEmpty := false
		if err := tx.QueryRow(ctx, sql.existsOthers.sql, idOf(deployment.Ref()).text(), idOf(deployment.Probe()).text()).Scan(&notEmpty); err != nil {
			return err
		}
		switch {
		case tx.note.Part == storemove.Followed:
			return storemove.ErrLeaving
		case notEmpty:
			return storemove.ErrNotEmpty
		}
		if err := m.exec(ctx, tx, &sql.hideKeys); err != nil {
			return err
		}
		return m.writeNote(ctx, tx, next)
	})
	if !errors.Is(err, ErrFilling) {
		return err
	}
	return m.doFilling(ctx, "fill", &sql.lockFilling, func(ctx context.Context, tx moveTx) error {
		if tx.note.Source != source {
			return tx.note.Closed()
		}
		if err := m.exec(ctx, tx, &sql.emptyFilling); err != nil {
			return err
		}
		return m.writeNote(ctx, tx, next)
	})
}

// doFilling runs a step on a store that is being filled. If its table is not there
// another run has opened the store.
func (m *mover) doFilling(ctx context.Context, verb string, lock *statement, step moveStep) error {
	err := m.do(ctx, verb, lock, step)
	if isCode(err, "42P01") {
		return fmt.Errorf("%s: %w", verb, storemove.ErrOvertaken)
	}
	return err
}

// Import implements [storemove.Destination]. Owners, attempts, answers and times stay
// what they were, and so do revisions unless this store's clock is behind.
func (m *mover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	rows, err := importArgs(records)
	if err != nil {
		return err
	}
	sql := &m.s.moveSQL
	return m.doFilling(ctx, "import", &sql.useFilling, func(ctx context.Context, tx moveTx) error {
		if !tx.filledBy(run) {
			return storemove.ErrOvertaken
		}
		if len(gone) > 0 {
			ids := make([]string, len(gone))
			for i, ref := range gone {
				ids[i] = idOf(ref).text()
			}
			if _, err := tx.Exec(ctx, sql.forgetKeys.sql, ids); err != nil {
				return err
			}
		}
		if len(records) == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, sql.importKeys.sql, rows...)
		return err
	})
}

// importArgs are the parameters of an import: an array for each column.
func importArgs(records []retrysafe.Record) ([]any, error) {
	n := len(records)
	ids, owners := make([]string, n), make([]string, n)
	created, revisions, remains := make([]int64, n), make([]int64, n), make([]int64, n)
	buckets, states := make([]int32, n), make([]int16, n)
	tails, checkpoints, heads := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i := range records {
		r := &records[i]
		if !r.State.Valid() {
			return nil, fmt.Errorf("import: %q has no state", r.Key)
		}
		w := retrysafe.Write{Record: *r, Term: r.Deadline.Sub(r.ReadAt)}
		k := idOf(r.Ref)
		ids[i], owners[i] = k.text(), id(r.Owner).text()
		created[i], revisions[i], remains[i] = r.CreatedAt.UnixMicro(), r.Revision, termOf(&w)
		buckets[i], states[i] = bucketOf(&w), int16(r.State)
		tails[i], checkpoints[i], heads[i] = appendTail(nil, r), appendCheckpoint([]byte{}, r.Checkpoint), appendHead(nil, k, r)
	}
	return []any{ids, owners, created, buckets, revisions, remains, tails, states, checkpoints, heads}, nil
}

// Filled implements [storemove.Destination].
func (m *mover) Filled(ctx context.Context, run retrysafe.Owner) error {
	return m.reopen(ctx, "open what was filled", run, &m.s.moveSQL.showKeys)
}

// Unfill implements [storemove.Destination].
func (m *mover) Unfill(ctx context.Context, run retrysafe.Owner) error {
	return m.reopen(ctx, "empty what was filled", run, &m.s.moveSQL.emptyFilling, &m.s.moveSQL.showKeys)
}

func (m *mover) reopen(ctx context.Context, verb string, run retrysafe.Owner, statements ...*statement) error {
	return m.doFilling(ctx, verb, &m.s.moveSQL.lockFilling, func(ctx context.Context, tx moveTx) error {
		if !tx.filledBy(run) {
			return storemove.ErrOvertaken
		}
		return m.exec(ctx, tx, statements...)
	})
}

// Filling implements [storemove.Destination].
func (m *mover) Filling(ctx context.Context) (run retrysafe.Owner, err error) {
	return m.runOf(ctx, storemove.Filling)
}

// runOf returns the run in which the store has this part.
func (m *mover) runOf(ctx context.Context, part storemove.Part) (run retrysafe.Owner, err error) {
	n, err := m.s.readNote(ctx, m.s.pool)
	if err != nil || n.Part != part {
		return retrysafe.Owner{}, explain(err)
	}
	return n.Run, nil
}
