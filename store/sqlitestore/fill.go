package sqlitestore

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// What a store does that records move into, for package move.

// Fill closes the store until [Store.Filled]: whatever process asks for a key gets
// [ErrFilling]. It must be empty, or be filled from the same source already: then
// what is there is thrown away, and whoever filled it before does no longer. From is
// how people call the source.
func (s *Store) Fill(ctx context.Context, by, source retrysafe.Owner, from string) error {
	return s.alone(ctx, "fill", func(ctx context.Context, tx execer, n storemove.Note) error {
		var first []string
		switch {
		case n.Part == storemove.Filling && n.Source == source:
			first = []string{emptyFilling}
		case n.Closed() != nil:
			return n.Closed()
		default:
			some := false
			if err := tx.QueryRowContext(ctx, existsKeys).Scan(&some); err != nil {
				return err
			}
			if n.Part == storemove.Followed {
				return storemove.ErrLeaving
			}
			if some {
				return ErrNotEmpty
			}
			first = []string{hideKeys}
		}
		return run(ctx, tx, first, func() error {
			return writeNote(ctx, tx, storemove.Note{Part: storemove.Filling, Run: by, Source: source, Peer: from, At: s.now()})
		})
	})
}

// Import stores records as they are, in place of what is there of the same keys, and
// forgets those that are gone. Owners, attempts, answers and times stay what they
// were, and so do revisions unless this store's clock is behind; of the time until a
// deadline as much is left as was when the record was read. [ErrOvertaken]: somebody
// else fills the store, or nobody does.
func (s *Store) Import(ctx context.Context, by retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	return s.alone(ctx, "import", func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Filling, by) {
			return ErrOvertaken
		}
		for _, ref := range gone {
			if _, err := tx.ExecContext(ctx, forgetKey, idOf(ref)); err != nil {
				return err
			}
		}
		now := s.now()
		var rows []any
		size := 0
		for i := range records {
			if records[i].State == 0 {
				return errState
			}
			r := imported(records[i], now)
			rec := retrysafe.AppendRecord(nil, &r)
			rows = append(rows, idOf(r.Ref), dueOf(&r), rec)
			if size += len(rec); size >= maxEncoded {
				if err := execMany(ctx, tx, importKeys, 3, rows); err != nil {
					return err
				}
				rows, size = rows[:0], 0
			}
		}
		return execMany(ctx, tx, importKeys, 3, rows)
	})
}

// imported is r by this store's clock.
func imported(r retrysafe.Record, now time.Time) retrysafe.Record {
	r.Deadline = now.Add(r.Deadline.Sub(r.ReadAt)).Truncate(time.Microsecond)
	r.Revision = min(r.Revision, now.UnixMicro())
	if r.UpdatedAt.After(now) {
		r.UpdatedAt = now
	}
	return r
}

// Filled opens the store: all records are there.
func (s *Store) Filled(ctx context.Context, by retrysafe.Owner) error {
	return s.reopen(ctx, "open what was filled", by, showKeys, dropNote)
}

// Unfill throws away what was imported and opens the store as it was.
func (s *Store) Unfill(ctx context.Context, by retrysafe.Owner) error {
	return s.reopen(ctx, "empty what was filled", by, emptyFilling, showKeys, dropNote)
}

func (s *Store) reopen(ctx context.Context, verb string, by retrysafe.Owner, statements ...string) error {
	return s.alone(ctx, verb, func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Filling, by) {
			return ErrOvertaken
		}
		return run(ctx, tx, statements, func() error { return nil })
	})
}

// Filling returns which run of a move fills the store; zero: none does.
func (s *Store) Filling(ctx context.Context) (by retrysafe.Owner, err error) {
	n, err := readNote(ctx, s.db)
	if err != nil || n.Part != storemove.Filling {
		return retrysafe.Owner{}, err
	}
	return n.Run, nil
}
