package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/lane"
)

// step is a Create or a Swap on its way.
type step struct {
	create bool
	r      retrysafe.Record
}

type answer = lane.Answer[retrysafe.Record]

// send does the steps of one batch in one transaction, and so in one flush. A
// step that is refused is refused by itself; only if the transaction cannot be
// finished do all members get its error, and none was applied, unless it was the
// commit that failed: then nobody can say.
func (s *Store) send(ctx context.Context, steps []step) (answers []answer) {
	if err := s.writer.inTx(ctx, s.db, func(w *writer) (err error) {
		answers, err = s.apply(ctx, w, steps)
		return err
	}); err != nil {
		answers = make([]answer, len(steps))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// row is what a batch knows of one key: as it was read, and as its own steps
// have left it since.
type row struct {
	id      []byte
	rec     retrysafe.Record
	exists  bool
	err     error // it cannot be read
	changed bool
}

// apply does steps inside a transaction that holds the write lock: it reads all
// their rows, decides each step in turn, and writes what has changed. Two steps
// on one key see each other.
func (s *Store) apply(ctx context.Context, tx execer, steps []step) ([]answer, error) {
	rows := make(map[string]*row, len(steps))
	of := make([]*row, len(steps))
	order := make([]*row, 0, len(steps))
	for i := range steps {
		id := idOf(steps[i].r.Ref)
		if rows[string(id)] == nil {
			rows[string(id)] = &row{id: id}
			order = append(order, rows[string(id)])
		}
		of[i] = rows[string(id)]
	}
	if err := s.read(ctx, tx, rows, order); err != nil {
		return nil, err
	}
	answers := make([]answer, len(steps))
	fence := int64(-1)
	for i := range steps {
		if steps[i].create && !of[i].exists && fence < 0 {
			if err := tx.QueryRowContext(ctx, selectFence).Scan(&fence); err != nil {
				return nil, fmt.Errorf("read fence: %w", err)
			}
		}
		got, err := s.decide(of[i], &steps[i], fence)
		answers[i] = answer{Value: got, Err: err}
	}
	return answers, s.write(ctx, tx, order)
}

// decide does one step on a row in memory.
func (s *Store) decide(at *row, st *step, fence int64) (retrysafe.Record, error) {
	now := s.now()
	stored := at.rec
	stored.ReadAt = now
	switch {
	case at.err != nil:
		return retrysafe.Record{}, at.err
	case st.create && !at.exists:
		at.rec = st.r
		at.rec.CreatedAt = now
		stamp(&at.rec, now, max(fence+1, now.UnixMicro()))
	case !at.exists:
		return retrysafe.Record{}, retrysafe.ErrNotFound
	case st.create && stored.Owner == st.r.Owner && !st.r.Owner.IsZero():
		return stored, nil
	case st.create:
		return stored, retrysafe.ErrExists
	case stored.Revision != st.r.Revision || stored.Owner != st.r.Owner:
		return stored, retrysafe.ErrConflict
	default:
		at.rec = retrysafe.Swapped(&stored, &st.r, now)
		stamp(&at.rec, now, max(stored.Revision+1, now.UnixMicro()))
	}
	at.exists, at.changed = true, true
	got := at.rec
	got.ReadAt = now
	return got, nil
}

// stamp sets what every write moves.
func stamp(r *retrysafe.Record, now time.Time, revision int64) {
	r.UpdatedAt, r.Deadline, r.Revision = now, now.Add(r.Term).Truncate(time.Microsecond), revision
	r.Claim, r.Term, r.ReadAt = retrysafe.Owner{}, 0, time.Time{}
}

// chunk is how many rows one statement reads or writes. There is one statement
// for each power of two up to it, so that few are ever prepared.
const chunk = 64

func (s *Store) read(ctx context.Context, tx execer, rows map[string]*row, order []*row) error {
	for part := range parts(order) {
		args := make([]any, size(len(part)))
		for i, r := range part {
			args[i] = r.id
		} // the rest stays NULL, which is in no list
		if err := scan(ctx, tx, rows, selectKeys[len(args)], args); err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
	}
	return nil
}

func scan(ctx context.Context, tx execer, rows map[string]*row, query string, args []any) error {
	found, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var id, rec []byte
		if err := found.Scan(&id, &rec); err != nil {
			return err
		}
		r := rows[string(id)]
		r.exists = true
		r.rec, r.err = retrysafe.DecodeRecord(rec)
	}
	return found.Err()
}

func (s *Store) write(ctx context.Context, tx execer, order []*row) error {
	changed := order[:0]
	for _, r := range order {
		if r.changed {
			changed = append(changed, r)
		}
	}
	for len(changed) > 0 {
		n := size(len(changed))
		if n > len(changed) {
			n /= 2
		}
		args := make([]any, 0, 7*n)
		for _, r := range changed[:n] {
			args = append(args, r.id, []byte(r.rec.Scope), r.rec.State, r.rec.Owner[:], r.rec.Revision, r.rec.Deadline.UnixMicro(), retrysafe.AppendRecord(nil, &r.rec))
		}
		res, err := tx.ExecContext(ctx, upsertKeys[n], args...)
		if err != nil {
			return fmt.Errorf("write keys: %w", err)
		}
		if wrote, err := res.RowsAffected(); err != nil || wrote != int64(n) {
			return errors.Join(fmt.Errorf("write keys: %d of %d rows", wrote, n), err)
		}
		changed = changed[n:]
	}
	return nil
}
