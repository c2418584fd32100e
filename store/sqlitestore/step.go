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
// step that fails by itself is answered by itself; only if the transaction
// cannot be finished do all members get its error, and none was applied, unless
// it was the commit that failed: then nobody can say.
func (s *Store) send(ctx context.Context, steps []step) []answer {
	answers := make([]answer, len(steps))
	if err := s.writer.inTx(ctx, s.db, func(w *writer) error {
		for i := range steps {
			got, err := s.do(ctx, w, &steps[i])
			if err != nil && !isAnswer(err) {
				return err
			}
			answers[i] = answer{Value: got, Err: err}
		}
		return nil
	}); err != nil {
		for i := range answers {
			answers[i] = answer{Err: err}
		}
	}
	return answers
}

// isAnswer reports whether err answers a step rather than breaking the
// transaction.
func isAnswer(err error) bool {
	return errors.Is(err, retrysafe.ErrExists) || errors.Is(err, retrysafe.ErrConflict) ||
		errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)
}

// do does one step inside a transaction that holds the write lock.
func (s *Store) do(ctx context.Context, tx execer, st *step) (retrysafe.Record, error) {
	id := idOf(st.r.Ref)
	stored, err := load(ctx, tx, id, s.now)
	switch missing := errors.Is(err, retrysafe.ErrNotFound); {
	case st.create && missing:
		return s.insert(ctx, tx, id, &st.r)
	case err != nil:
		return stored, err
	case st.create && stored.Owner == st.r.Owner && !st.r.Owner.IsZero():
		return stored, nil
	case st.create:
		return stored, retrysafe.ErrExists
	case stored.Revision != st.r.Revision || stored.Owner != st.r.Owner:
		return stored, retrysafe.ErrConflict
	}
	return s.update(ctx, tx, id, &stored, &st.r)
}

func (s *Store) insert(ctx context.Context, tx execer, id []byte, r *retrysafe.Record) (retrysafe.Record, error) {
	var fence int64
	if err := tx.QueryRowContext(ctx, selectFence).Scan(&fence); err != nil {
		return retrysafe.Record{}, fmt.Errorf("read fence: %w", err)
	}
	now := s.now()
	next := *r
	next.CreatedAt = now
	stamp(&next, now, max(fence+1, now.UnixMicro()))
	_, err := tx.ExecContext(ctx, insertKey, id, []byte(next.Scope), next.State, next.Owner[:], next.Revision, next.Deadline.UnixMicro(), retrysafe.AppendRecord(nil, &next))
	if err != nil {
		return retrysafe.Record{}, fmt.Errorf("insert key: %w", err)
	}
	next.ReadAt = now
	return next, nil
}

func (s *Store) update(ctx context.Context, tx execer, id []byte, stored, r *retrysafe.Record) (retrysafe.Record, error) {
	now := s.now()
	next := retrysafe.Swapped(stored, r, now)
	stamp(&next, now, max(stored.Revision+1, now.UnixMicro()))
	res, err := tx.ExecContext(ctx, updateKey, next.State, next.Owner[:], next.Revision, next.Deadline.UnixMicro(), retrysafe.AppendRecord(nil, &next), id, stored.Revision, stored.Owner[:])
	if err != nil {
		return retrysafe.Record{}, fmt.Errorf("update key: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return retrysafe.Record{}, fmt.Errorf("update key: %d rows: %w", n, err)
	}
	next.ReadAt = now
	return next, nil
}

// stamp sets what every write moves.
func stamp(r *retrysafe.Record, now time.Time, revision int64) {
	r.UpdatedAt, r.Deadline, r.Revision = now, now.Add(r.Term).Truncate(time.Microsecond), revision
	r.Claim, r.Term = retrysafe.Owner{}, 0
}
