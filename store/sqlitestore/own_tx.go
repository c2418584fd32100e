package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failpoint"
)

var _ retrysafe.TxStore[*sql.Tx] = (*Store)(nil)

// BeginTx implements [retrysafe.TxStore], for [retrysafe.DoTx]. The transaction takes
// SQLite's write lock with its first step on a key, before it reads anything, and keeps
// it until it ends. SQLite has one writer, so transactions on other keys and the store's
// own steps wait for it. Keep such transactions short, and make the first step on the
// key before any write of your own: a write takes the lock out of turn.
//
// A step on a key that another open transaction of this store holds returns
// [retrysafe.ErrBusy] at once, and so does [Store.Create] if the key has no record yet.
// If the transaction is of another process, or one that [Store.Tx] has joined, the step
// waits for it as for any other writer. A Reserve of another key waits until the
// transaction has ended, or until its context has.
//
// When ctx ends before the transaction, the transaction is rolled back, and its keys and
// the write lock are free.
func (s *Store) BeginTx(ctx context.Context) (retrysafe.Tx, *sql.Tx, error) {
	t := new(ownTx)
	tx, err := s.beginWatched(ctx, t.release)
	if err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	t.Tx = Tx{s, tx}
	return t, tx.Tx.Tx, nil
}

// ownTx is a transaction that the store has begun, with the keys that it holds.
type ownTx struct {
	Tx
	mu   sync.Mutex // the end of the context releases, too
	held []retrysafe.Ref
	turn bool // this transaction has the turn; see heldKeys
}

// Reserve implements [retrysafe.Tx].
func (t *ownTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return t.reserve(ctx, ref, t.awaitTurn)
}

func (t *ownTx) reserve(ctx context.Context, ref retrysafe.Ref, takeTurn func(context.Context) error) (retrysafe.Record, error) {
	if !t.hold(ref) {
		return retrysafe.Record{}, retrysafe.ErrBusy
	}
	if err := takeTurn(ctx); err != nil {
		return retrysafe.Record{}, errors.Join(err, t.Rollback(ctx))
	}
	got, err := t.Tx.Reserve(ctx, ref)
	if !answered(err) {
		t.release() // the transaction was rolled back
	}
	return got, err
}

// answered reports whether Reserve has found out what is stored, in which case the
// transaction goes on.
func answered(err error) bool {
	return err == nil || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrUnreadable)
}

// Create implements [retrysafe.Tx].
func (t *ownTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.write(ctx, w, t.Tx.Create)
}

// Swap implements [retrysafe.Swapper].
func (t *ownTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.write(ctx, w, t.Tx.Swap)
}

// write reserves the key, and so takes the write lock, before do reads: a transaction
// that reads first may be refused the lock later.
func (t *ownTx) write(ctx context.Context, w retrysafe.Write, do func(context.Context, retrysafe.Write) (retrysafe.Record, error)) (retrysafe.Record, error) {
	if !t.holds(w.Ref) {
		if _, err := t.reserve(ctx, w.Ref, t.tryTurn); !answered(err) {
			return retrysafe.Record{}, errors.Join(err, t.Rollback(ctx))
		}
	}
	got, err := do(ctx, w)
	if err != nil {
		t.release() // the transaction was rolled back
	}
	return got, err
}

// Commit implements [retrysafe.Tx].
func (t *ownTx) Commit(ctx context.Context) error {
	defer t.release()
	err := t.Tx.Commit(ctx)
	failpoint.Hit("sqlite.tx.committed")
	return err
}

// Rollback implements [retrysafe.Tx].
func (t *ownTx) Rollback(ctx context.Context) error {
	defer t.release()
	return t.Tx.Rollback(ctx)
}

func (t *ownTx) holds(ref retrysafe.Ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.held, ref)
}

func (t *ownTx) hold(ref retrysafe.Ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.held, ref) {
		return true
	}
	if !t.s.held.take(ref) {
		return false
	}
	t.held = append(t.held, ref)
	return true
}

func (t *ownTx) hasTurn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turn
}

func (t *ownTx) setTurn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn = true
}

// awaitTurn waits for the turn. Transactions that wait for SQLite's write lock poll for
// it, so a late one may get it first. The turn goes to them in the order of their
// arrival.
func (t *ownTx) awaitTurn(ctx context.Context) error {
	if t.hasTurn() {
		return nil
	}
	select {
	case t.s.held.turns() <- struct{}{}:
		t.setTurn()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another transaction: %w", ctx.Err())
	}
}

// tryTurn takes the turn if it is free, and goes on without it otherwise. The caller's
// own writes may have taken the write lock already, and the transaction that has the
// turn waits for that lock: to wait for the turn would be a deadlock.
func (t *ownTx) tryTurn(context.Context) error {
	if !t.hasTurn() {
		select {
		case t.s.held.turns() <- struct{}{}:
			t.setTurn()
		default:
		}
	}
	return nil
}

// release frees the keys and the turn. A step that takes them after the end of the
// context fails, and releases them again.
func (t *ownTx) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ref := range t.held {
		t.s.held.free(ref)
	}
	t.held = nil
	if t.turn {
		t.turn = false
		<-t.s.held.turns()
	}
}

// heldKeys are the keys that the open transactions of a store hold. The turn puts these
// transactions in a queue for SQLite's write lock: only the one that has the turn waits
// for the lock.
type heldKeys struct {
	mu   sync.Mutex
	refs map[retrysafe.Ref]struct{}
	turn chan struct{} // holds one element while a transaction has the turn; made on first use
}

func (h *heldKeys) turns() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turn == nil {
		h.turn = make(chan struct{}, 1)
	}
	return h.turn
}

func (h *heldKeys) take(ref retrysafe.Ref) bool {
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

func (h *heldKeys) has(ref retrysafe.Ref) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.refs[ref]
	return ok
}

func (h *heldKeys) free(ref retrysafe.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refs, ref)
}
