package sqlitestore

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// Fill implements [storemove.Destination]. It renames the table of keys, so that no
// process finds it.
func (m mover) Fill(ctx context.Context, run, source retrysafe.Owner, from string) error {
	return m.tx(ctx, "fill", func(ctx context.Context, tx execer, n storemove.Note) error {
		var prepare string
		switch {
		case n.Part == storemove.Filling && n.Source == source:
			prepare = emptyFilling
		case n.Closed() != nil:
			return n.Closed()
		default:
			some := false
			if err := tx.QueryRowContext(ctx, existsOthers, idOf(deployment.Ref()), idOf(deployment.Probe())).Scan(&some); err != nil {
				return err
			}
			if n.Part == storemove.Followed {
				return storemove.ErrLeaving
			}
			if some {
				return storemove.ErrNotEmpty
			}
			prepare = hideKeys
		}
		if err := execAll(ctx, tx, prepare); err != nil {
			return err
		}
		return writeNote(ctx, tx, storemove.Note{Part: storemove.Filling, Run: run, Source: source, Peer: from, At: m.s.now()})
	})
}

// Import implements [storemove.Destination].
func (m mover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	return m.tx(ctx, "import", func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Filling, run) {
			return storemove.ErrOvertaken
		}
		for _, ref := range gone {
			if _, err := tx.ExecContext(ctx, forgetKey, idOf(ref)); err != nil {
				return err
			}
		}
		now := m.s.now()
		var rows []any
		size := 0
		for i := range records {
			if records[i].State == 0 {
				return errState
			}
			r := imported(records[i], now)
			rec := storekit.AppendRecord(nil, &r)
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

// imported returns r with its deadline by this store's clock. A revision or an UpdatedAt
// that lies in this store's future becomes now.
func imported(r retrysafe.Record, now time.Time) retrysafe.Record {
	r.Deadline = now.Add(r.Deadline.Sub(r.ReadAt)).Truncate(time.Microsecond)
	r.Revision = min(r.Revision, now.UnixMicro())
	if r.UpdatedAt.After(now) {
		r.UpdatedAt = now
	}
	return r
}

// Filled implements [storemove.Destination].
func (m mover) Filled(ctx context.Context, run retrysafe.Owner) error {
	return m.open(ctx, "open what was filled", run, showKeys, dropNote)
}

// Unfill implements [storemove.Destination].
func (m mover) Unfill(ctx context.Context, run retrysafe.Owner) error {
	return m.open(ctx, "empty what was filled", run, emptyFilling, showKeys, dropNote)
}

func (m mover) open(ctx context.Context, verb string, run retrysafe.Owner, statements ...string) error {
	return m.tx(ctx, verb, func(ctx context.Context, tx execer, n storemove.Note) error {
		if !n.IsBy(storemove.Filling, run) {
			return storemove.ErrOvertaken
		}
		return execAll(ctx, tx, statements...)
	})
}

// Filling implements [storemove.Destination].
func (m mover) Filling(ctx context.Context) (run retrysafe.Owner, err error) {
	n, err := readNote(ctx, m.s.db)
	if err != nil || n.Part != storemove.Filling {
		return retrysafe.Owner{}, err
	}
	return n.Run, nil
}
