package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/internal/pool"
)

// Requests that arrive at the same time share a batch: one transaction reads all
// their rows, decides each request, and writes what has changed, with one flush.
//
// The transaction is deferred: it takes the write lock only when it writes, so a batch
// that meets only keys that exist locks nothing. SQLite grants the lock that late only
// if no other connection has written since the transaction began to read. If it
// refuses, or if another connection has the lock, the requests that have to write go
// into a batch of an immediate transaction, which waits for the lock. All others have
// their answers. So no replay waits for a writer.

// request is a Create or a Swap.
type request struct {
	create bool
	w      retrysafe.Write
}

// queued is a request in a batch, with its row. The row's record becomes its answer.
type queued struct {
	request
	row row
}

// large reports whether the request carries so much that others should not wait for it.
func (q *queued) large() bool {
	var answer []byte
	if q.w.Result != nil {
		answer = q.w.Result.Body
	}
	return groupcommit.Large(q.w.Request, q.w.Checkpoint.Data, answer)
}

type (
	batcher = groupcommit.Batcher[*queued, *retrysafe.Record]
	answer  = groupcommit.Answer[*retrysafe.Record]
)

var (
	// errLocked is the answer to a request that has to go into an immediate
	// transaction.
	errLocked = errors.New("sqlitestore: another connection is writing")
	errState  = errors.New("sqlitestore: the record has no state")
)

var spare pool.Of[queued]

// do sends a request in a batch.
func (s *Store) do(ctx context.Context, create bool, w *retrysafe.Write) (retrysafe.Record, error) {
	if w.State == 0 {
		return retrysafe.Record{}, errState // it would fail the whole batch
	}
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	q := spare.Get()
	q.create, q.w = create, *w
	q.w.Announce = w.Announce && s.announces
	q.row.id = id(idOf(w.Ref))
	got, err := s.deferred.Do(ctx, q)
	if errors.Is(err, errLocked) {
		if create && s.held.has(w.Ref) {
			return retrysafe.Record{}, retrysafe.ErrBusy // to wait for the lock is to wait for that transaction
		}
		got, err = s.immediate.Do(ctx, q)
	}
	if got == nil { // if ctx has ended, the batch may still use q
		return retrysafe.Record{}, err
	}
	answer := *got
	*q = queued{}
	spare.Put(q)
	return answer, err
}

// sendDeferred sends a batch that waits for no lock. A request that is refused does
// not affect the others. If the transaction cannot be finished, every request that was
// to write gets its error. None of them was applied then, unless the commit failed:
// then the outcome is unknown.
func (s *Store) sendDeferred(ctx context.Context, requests []*queued) []answer {
	b := newBatch(requests)
	defer b.release()
	s.reserved.assume(b)
	err := s.tryDeferred(ctx, b)
	if errors.Is(err, errStale) {
		b.distrust()
		err = s.tryDeferred(ctx, b)
	}
	if isBusy(err) {
		err = errLocked
	}
	s.ended(&s.deferredConn, b, err)
	return b.answered(s.explain(ctx, err))
}

func (s *Store) tryDeferred(ctx context.Context, b *batch) error {
	locked := false
	err := s.deferredConn.tx(ctx, "BEGIN", func(ctx context.Context, tx execer) error {
		if err := s.decide(ctx, tx, b); err != nil || !b.changed() {
			return err
		}
		if locked = s.writing.TryLock(); !locked {
			return errLocked
		}
		failpoint.Hit("sqlite.decided")
		return b.write(ctx, tx)
	})
	if locked {
		s.writing.Unlock()
	}
	return err
}

// ended notes what a batch has written on a connection, if anything.
func (s *Store) ended(conn *session, b *batch, err error) {
	if errors.Is(err, errLocked) {
		return // nothing was written, and the requests go into another batch
	}
	s.reserved.note(b, err == nil)
	if err != nil || conn.lend { // a small pool has no connection to spare for a checkpoint
		return
	}
	s.log.use(conn.autoCheckpoint)
	s.log.wrote(s.db, b.pages(), s.deferred.Timeout)
}

// sendImmediate sends a batch that waits for the write lock.
func (s *Store) sendImmediate(ctx context.Context, requests []*queued) []answer {
	b := newBatch(requests)
	defer b.release()
	s.writing.Lock()
	defer s.writing.Unlock()
	s.reserved.assume(b)
	err := s.tryImmediate(ctx, b)
	if errors.Is(err, errStale) {
		b.distrust()
		err = s.tryImmediate(ctx, b)
	}
	s.ended(&s.immediateConn, b, err)
	return b.answered(s.explain(ctx, err))
}

func (s *Store) tryImmediate(ctx context.Context, b *batch) error {
	return s.immediateConn.tx(ctx, "BEGIN IMMEDIATE", func(ctx context.Context, tx execer) error {
		if err := s.decide(ctx, tx, b); err != nil {
			return err
		}
		return b.write(ctx, tx)
	})
}

// apply applies requests inside a transaction of the caller's.
func (s *Store) apply(ctx context.Context, tx execer, requests []request) ([]groupcommit.Answer[retrysafe.Record], error) {
	all := make([]*queued, len(requests))
	for i, q := range requests {
		q.w.Announce = false // only a step of the store's own is announced
		all[i] = &queued{request: q, row: row{id: id(idOf(q.w.Ref))}}
		s.reserved.forget(all[i].row.id)
	}
	b := newBatch(all)
	defer b.release()
	if err := s.decide(ctx, tx, b); err != nil {
		return nil, err
	}
	if err := b.write(ctx, tx); err != nil {
		return nil, err
	}
	got := make([]groupcommit.Answer[retrysafe.Record], len(requests))
	for i, a := range b.answers {
		if got[i].Err = a.Err; a.Value != nil {
			got[i].Value = *a.Value
		}
	}
	return got, nil
}

// decide reads the rows of a batch and applies its requests to them, in their order. A
// request sees what those before it did to the same key.
func (s *Store) decide(ctx context.Context, tx execer, b *batch) error {
	if err := b.read(ctx, tx); err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	now, fence := s.now(), int64(-1)
	for i, q := range b.requests {
		at := b.rowOf(i)
		if q.create && !at.exists && fence < 0 {
			if err := tx.QueryRowContext(ctx, selectFence).Scan(&fence); err != nil {
				return fmt.Errorf("read fence: %w", err)
			}
		}
		b.answer(i, now, at.apply(&q.request, now, fence))
	}
	return nil
}
