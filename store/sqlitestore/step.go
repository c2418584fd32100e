package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// Steps that come together travel together: one transaction reads all their rows,
// decides each step, and writes what has changed, in one flush.
//
// It takes the write lock only when it writes, so that a trip which meets nothing
// but keys that exist locks nothing. SQLite grants the lock that late only if
// nobody has written since the trip began to read. If it does not, or if somebody
// has the lock, the steps that were to write travel again, in a lane that waits
// for the lock; all others have their answers. So no replay waits for a writer.

// step is a Create or a Swap.
type step struct {
	create bool
	r      retrysafe.Record
}

// queued is a step on its way, with its row. The row's record becomes its answer.
type queued struct {
	step
	row row
}

type (
	trips  = groupcommit.Batcher[*queued, *retrysafe.Record]
	answer = groupcommit.Answer[*retrysafe.Record]
)

var (
	// errLocked is what a step gets that is to travel again.
	errLocked = errors.New("sqlitestore: somebody else is writing")
	errState  = errors.New("sqlitestore: the record has no state")
)

var spare = sync.Pool{New: func() any { return new(queued) }}

// do takes a step along on a trip.
func (s *Store) do(ctx context.Context, create bool, r *retrysafe.Record) (retrysafe.Record, error) {
	if r.State == 0 {
		return retrysafe.Record{}, errState // it would fail the whole trip
	}
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	q := spare.Get().(*queued)
	q.create, q.r = create, *r
	q.row.id = id(idOf(r.Ref))
	got, err := s.steps.Do(ctx, q)
	if errors.Is(err, errLocked) {
		got, err = s.waits.Do(ctx, q)
	}
	if got == nil { // perhaps because ctx has ended, and q is still on its way
		return retrysafe.Record{}, err
	}
	answer := *got
	*q = queued{}
	spare.Put(q)
	return answer, err
}

// send makes a trip that waits for nobody. A step that is refused is refused by
// itself; only if the transaction cannot be finished do all that were to write get
// its error, and none was applied, unless it was the commit that failed: then
// nobody can say.
func (s *Store) send(ctx context.Context, steps []*queued) []answer {
	b := newBatch(steps)
	defer b.release()
	locked := false
	err := s.writer.tx(ctx, "BEGIN", func(ctx context.Context, tx execer) error {
		if err := s.decide(ctx, tx, b); err != nil || !b.changed() {
			return err
		}
		if locked = s.turn.TryLock(); !locked {
			return errLocked
		}
		failpoint.Hit("sqlite.decided")
		return b.write(ctx, tx)
	})
	if locked {
		s.turn.Unlock()
	}
	if isBusy(err) {
		err = errLocked
	}
	return b.answered(s.explain(ctx, err))
}

// sendLocked makes a trip that waits for the write lock.
func (s *Store) sendLocked(ctx context.Context, steps []*queued) []answer {
	b := newBatch(steps)
	defer b.release()
	s.turn.Lock()
	defer s.turn.Unlock()
	err := s.waiter.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error {
		if err := s.decide(ctx, tx, b); err != nil {
			return err
		}
		return b.write(ctx, tx)
	})
	return b.answered(s.explain(ctx, err))
}

// apply does steps inside a transaction of the caller's.
func (s *Store) apply(ctx context.Context, tx execer, steps []step) ([]groupcommit.Answer[retrysafe.Record], error) {
	all := make([]*queued, len(steps))
	for i, st := range steps {
		all[i] = &queued{step: st, row: row{id: id(idOf(st.r.Ref))}}
	}
	b := newBatch(all)
	defer b.release()
	if err := s.decide(ctx, tx, b); err != nil {
		return nil, err
	}
	if err := b.write(ctx, tx); err != nil {
		return nil, err
	}
	got := make([]groupcommit.Answer[retrysafe.Record], len(steps))
	for i, a := range b.answers {
		if got[i].Err = a.Err; a.Value != nil {
			got[i].Value = *a.Value
		}
	}
	return got, nil
}

// decide reads the rows of a batch and does its steps on them, in turn. Two steps
// on one key see each other.
func (s *Store) decide(ctx context.Context, tx execer, b *batch) error {
	if err := b.read(ctx, tx); err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	now, fence := s.now(), int64(-1)
	for i, q := range b.steps {
		at := b.rowOf(i)
		if q.create && !at.exists && fence < 0 {
			if err := tx.QueryRowContext(ctx, selectFence).Scan(&fence); err != nil {
				return fmt.Errorf("read fence: %w", err)
			}
		}
		b.answer(i, now, at.take(&q.step, now, fence))
	}
	return nil
}
