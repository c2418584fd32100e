package mysqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// Fill implements [storemove.Destination]. It renames the table of keys, so that no
// process finds it.
func (m mover) Fill(ctx context.Context, run, source retrysafe.Owner, from string) error {
	return m.do(ctx, "fill", func(c conn, n storemove.Note) error {
		now, err := serverNow(ctx, c)
		if err != nil {
			return err
		}
		note := storemove.Note{Part: storemove.Filling, Run: run, Source: source, Peer: from, At: now}
		switch {
		case n.Part == storemove.Filling && n.Source == source:
			if err := writeNote(ctx, c, note); err != nil { // from here on an import of the run before is refused
				return err
			}
			return execAll(ctx, c, `DELETE FROM retrysafe_keys_filling`)
		case n.Closed() != nil:
			return n.Closed()
		case n.Part == storemove.Followed:
			return storemove.ErrLeaving
		}
		if err := execAll(ctx, c, `LOCK TABLES retrysafe_keys WRITE, retrysafe_move WRITE`); err != nil {
			return err
		}
		var others int
		if err := c.run(ctx, one(existsOthers, &others, idOf(deployment.Ref()), idOf(deployment.Probe()))); err != nil {
			return err
		}
		if others > 0 {
			return storemove.ErrNotEmpty
		}
		if err := writeNote(ctx, c, note); err != nil {
			return err
		}
		return execAll(ctx, c, hideKeys)
	})
}

// Import implements [storemove.Destination].
func (m mover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	return m.do(ctx, "import", func(c conn, n storemove.Note) error {
		if !n.IsBy(storemove.Filling, run) {
			return storemove.ErrOvertaken
		}
		now, err := serverNow(ctx, c)
		if err != nil {
			return err
		}
		if _, err := c.ExecContext(ctx, begin); err != nil {
			return err
		}
		for _, ref := range gone {
			if _, err := c.ExecContext(ctx, `DELETE FROM retrysafe_keys_filling WHERE id = ?`, idOf(ref)); err != nil {
				return err
			}
		}
		for i := range records {
			if records[i].State == 0 {
				return errors.Join(errState, errRollback)
			}
		}
		all := make([]int, len(records))
		for i := range all {
			all[i] = i
		}
		for some := range chunks(all, func(i int) int { return sizeOf(&retrysafe.Write{Record: records[i]}) }) {
			var rows []any
			for _, i := range some {
				r := imported(records[i], now)
				rows = append(rows, updateArgs(idOfRef(r.Ref), &r, true)...)
			}
			if _, err := c.ExecContext(ctx, `INSERT INTO retrysafe_keys_filling `+keyInsert+` VALUES `+repeated(updateRow, len(some))+updateWhole, rows...); err != nil {
				return err
			}
		}
		_, err = c.ExecContext(context.WithoutCancel(ctx), `COMMIT`)
		return err
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
	return m.open(ctx, "open what was filled", run, showKeys, deleteNote)
}

// Unfill implements [storemove.Destination].
func (m mover) Unfill(ctx context.Context, run retrysafe.Owner) error {
	return m.open(ctx, "empty what was filled", run, `DELETE FROM retrysafe_keys_filling`, showKeys, deleteNote)
}

func (m mover) open(ctx context.Context, verb string, run retrysafe.Owner, statements ...string) error {
	return m.do(ctx, verb, func(c conn, n storemove.Note) error {
		if !n.IsBy(storemove.Filling, run) {
			return storemove.ErrOvertaken
		}
		return execAll(ctx, c, statements...)
	})
}

// Filling implements [storemove.Destination].
func (m mover) Filling(ctx context.Context) (run retrysafe.Owner, err error) {
	n, err := readNote(ctx, m.s.steps.db)
	if err != nil || n.Part != storemove.Filling {
		return retrysafe.Owner{}, err
	}
	return n.Run, nil
}
