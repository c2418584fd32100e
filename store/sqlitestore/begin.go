package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

var _ retrysafe.TxStore[*sql.Tx] = (*Store)(nil)

// BeginTx implements [retrysafe.TxStore], for [retrysafe.DoTx]. The transaction
// takes SQLite's write lock with its first step on a key, before it reads
// anything, and keeps it: SQLite has one writer, so other keys wait for it, and so
// do the store's own steps. Keep such transactions short, and make the first step on
// the key before any write of your own: a write takes the lock out of turn.
//
// A key that an open transaction of this store has is not waited for:
// [retrysafe.ErrBusy] comes at once. Another process that has it is waited for as
// any other writer.
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, *sql.Tx, error) {
	// Read-only is how the driver is asked not to take the write lock now; it does
	// not keep the transaction from writing. A duplicate must be able to begin.
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	return &begunTx{Tx: *s.Tx(tx)}, tx, nil
}

// begunTx is a transaction that the store has begun, and the keys that it holds.
type begunTx struct {
	Tx
	held []retrysafe.Ref
	turn bool // it has the turn of the store's transactions
}

// Reserve implements [retrysafe.Tx].
func (t *begunTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return t.reserve(ctx, ref, t.queue)
}

func (t *begunTx) reserve(ctx context.Context, ref retrysafe.Ref, queue func(context.Context) error) (retrysafe.Record, error) {
	if !t.hold(ref) {
		return retrysafe.Record{}, retrysafe.ErrBusy
	}
	if err := queue(ctx); err != nil {
		return retrysafe.Record{}, errors.Join(err, t.Rollback(ctx))
	}
	got, err := t.Tx.Reserve(ctx, ref)
	if !answered(err) {
		t.release() // it was rolled back
	}
	return got, err
}

// answered reports whether err is an answer of Reserve, which goes on.
func answered(err error) bool {
	return err == nil || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)
}

// Create implements [retrysafe.Tx].
func (t *begunTx) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return t.step(ctx, r, t.Tx.Create)
}

// Swap implements [retrysafe.Swapper].
func (t *begunTx) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return t.step(ctx, r, t.Tx.Swap)
}

// step takes the key, and so the write lock, before a step reads: who reads first
// may find that it cannot write any more.
func (t *begunTx) step(ctx context.Context, r retrysafe.Record, do func(context.Context, retrysafe.Record) (retrysafe.Record, error)) (retrysafe.Record, error) {
	if !t.holds(r.Ref) {
		if _, err := t.reserve(ctx, r.Ref, t.jump); !answered(err) {
			return retrysafe.Record{}, errors.Join(err, t.Rollback(ctx))
		}
	}
	got, err := do(ctx, r)
	if err != nil {
		t.release() // it was rolled back
	}
	return got, err
}

// Commit implements [retrysafe.Tx].
func (t *begunTx) Commit(ctx context.Context) error {
	defer t.release()
	err := t.Tx.Commit(ctx)
	failpoint.Hit("sqlite.tx.committed")
	return err
}

// Rollback implements [retrysafe.Tx].
func (t *begunTx) Rollback(ctx context.Context) error {
	defer t.release()
	return t.Tx.Rollback(ctx)
}

func (t *begunTx) holds(ref retrysafe.Ref) bool {
	for _, h := range t.held {
		if h == ref {
			return true
		}
	}
	return false
}

func (t *begunTx) hold(ref retrysafe.Ref) bool {
	if t.holds(ref) {
		return true
	}
	if !t.s.held.take(ref) {
		return false
	}
	t.held = append(t.held, ref)
	return true
}

// queue waits for the turn. Those who wait for SQLite's write lock itself ask for
// it now and then, and who comes late may be lucky; here the first is the first.
func (t *begunTx) queue(ctx context.Context) error {
	if t.turn {
		return nil
	}
	select {
	case t.s.held.turns() <- struct{}{}:
		t.turn = true
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another transaction: %w", ctx.Err())
	}
}

// jump takes the turn if it is free, and goes on without it otherwise. The caller's
// own writes may have the write lock already, and whoever has the turn waits for it.
func (t *begunTx) jump(context.Context) error {
	if !t.turn {
		select {
		case t.s.held.turns() <- struct{}{}:
			t.turn = true
		default:
		}
	}
	return nil
}

func (t *begunTx) release() {
	for _, ref := range t.held {
		t.s.held.free(ref)
	}
	t.held = nil
	if t.turn {
		t.turn = false
		<-t.s.held.turns()
	}
}

// holds are the keys that open transactions of one store have, and their turn.
type holds struct {
	mu   sync.Mutex
	refs map[retrysafe.Ref]struct{}
	turn chan struct{} // full while one of them has the write lock; made by the first to need it
}

func (h *holds) turns() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turn == nil {
		h.turn = make(chan struct{}, 1)
	}
	return h.turn
}

func (h *holds) take(ref retrysafe.Ref) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.refs[ref]; ok {
		return false
	}
	if h.refs == nil {
		h.refs = make(map[retrysafe.Ref]struct{})
	}
	h.refs[ref] = struct{}{}
	return true
}

func (h *holds) free(ref retrysafe.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refs, ref)
}
