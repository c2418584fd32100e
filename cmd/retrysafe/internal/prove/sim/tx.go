package sim

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A tx is a transaction on a connection that may break. Then its server rolls it back
// some time later, unless a commit was on its way.
type tx struct {
	w      *world
	node   *node
	below  *memstore.Tx
	broken bool
	ended  bool

	held     []retrysafe.Ref
	staged   []stagedRecord
	messages []message
	effect   bool // it writes what the operation is about
}

type stagedRecord struct {
	asked retrysafe.Write
	got   retrysafe.Record
}

var (
	_ retrysafe.Tx              = (*tx)(nil)
	_ outbox.Enqueuer           = (*tx)(nil)
	_ retrysafe.CreateCommitter = finishing{}
)

// finishing is a transaction that inserts and commits in one round trip.
type finishing struct{ *tx }

var errBroken = errors.New("sim: the transaction's connection is gone")

// BeginTx implements [retrysafe.TxStore].
func (s *store) BeginTx(ctx context.Context) (retrysafe.Tx, *tx, error) {
	w := s.w
	f := w.reaches()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if f == losesRequest || f == comesLate || f == losesReply {
		return nil, nil, w.gives()
	}
	below, err := w.mem.Begin(outside)
	if err != nil {
		return nil, nil, err
	}
	t := &tx{w: w, node: w.at.node, below: below}
	w.txs = append(w.txs, t)
	if w.onePush {
		return finishing{t}, t, nil
	}
	return t, t, nil
}

// holder returns the open transaction that has the key.
func (w *world) holder(ref retrysafe.Ref) *tx {
	for _, t := range w.txs {
		for i := range t.held {
			if t.held[i] == ref {
				return t
			}
		}
	}
	return nil
}

// breaks ends the connection. The server notices after a while.
func (t *tx) breaks() {
	if t.broken || t.ended {
		return
	}
	t.broken = true
	t.w.happens(txBroken)
	t.w.later(time.Duration(t.w.draw(30_000))*time.Millisecond, func() { _ = t.end(false) })
}

// end is how the transaction ends, in its server.
func (t *tx) end(commit bool) (err error) {
	if t.ended {
		return retrysafe.ErrTxDone
	}
	w := t.w
	t.ended = true
	for i := range w.txs {
		if w.txs[i] == t {
			w.txs = append(w.txs[:i], w.txs[i+1:]...)
			break
		}
	}
	if !commit {
		return t.below.Rollback(outside)
	}
	if err := t.below.Commit(outside); err != nil {
		return err
	}
	w.committed(t)
	return nil
}

// step sends one statement. A statement that is lost breaks the connection.
func (t *tx) step(ctx context.Context) (transit, error) {
	f := t.w.reaches()
	switch {
	case t.broken:
		return f, errBroken
	case ctx.Err() != nil:
		return f, ctx.Err()
	case f == losesRequest || f == comesLate:
		t.breaks()
		return f, t.w.gives()
	}
	return f, nil
}

// back lets the reply to a statement come back.
func (t *tx) back(f transit) error {
	err := t.w.returns(f)
	if err != nil {
		t.breaks()
	}
	return err
}

func (t *tx) holds(ref retrysafe.Ref) {
	for i := range t.held {
		if t.held[i] == ref {
			return
		}
	}
	t.held = append(t.held, ref)
}

// Reserve implements [retrysafe.Tx].
func (t *tx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	f, err := t.step(ctx)
	if err != nil {
		return retrysafe.Record{}, err
	}
	var got retrysafe.Record
	if t.w.holder(ref) == nil || t.w.holder(ref) == t {
		got, err = t.below.Reserve(outside, ref)
	} else {
		err = retrysafe.ErrBusy
	}
	if err == nil || errors.Is(err, retrysafe.ErrNotFound) {
		t.holds(ref)
	}
	if t.w.traces {
		t.w.tracef("reserve %s/%s in a transaction%s → %s", ref.Scope, ref.Key, transitNames[f], said(&got, err))
	}
	if lost := t.back(f); lost != nil {
		return retrysafe.Record{}, lost
	}
	return got, err
}

// Create implements [retrysafe.Tx].
func (t *tx) Create(ctx context.Context, next retrysafe.Write) (retrysafe.Record, error) {
	return t.write(ctx, &next, "create", t.below.Create)
}

// Swap implements [retrysafe.Swapper].
func (t *tx) Swap(ctx context.Context, next retrysafe.Write) (retrysafe.Record, error) {
	return t.write(ctx, &next, "swap", t.below.Swap)
}

func (t *tx) write(ctx context.Context, next *retrysafe.Write, verb string, do func(context.Context, retrysafe.Write) (retrysafe.Record, error)) (retrysafe.Record, error) {
	f, err := t.step(ctx)
	if err != nil {
		return retrysafe.Record{}, err
	}
	got, err := do(outside, *next)
	if t.w.traces {
		t.w.tracef("%s %s/%s at %d to %s in a transaction%s → %s", verb, next.Scope, next.Key, next.Expect.Revision, next.State, transitNames[f], said(&got, err))
	}
	if !errors.Is(err, retrysafe.ErrBusy) {
		t.holds(next.Ref)
	}
	if err == nil {
		t.staged = append(t.staged, stagedRecord{*next, got})
	}
	if lost := t.back(f); lost != nil {
		return retrysafe.Record{}, lost
	}
	return got, err
}

// Enqueue implements [outbox.Enqueuer].
func (t *tx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	f, err := t.step(ctx)
	if err != nil {
		return err
	}
	if err := t.below.Enqueue(outside, messages...); err != nil {
		return err
	}
	for i := range messages {
		t.messages = append(t.messages, messageOf(&messages[i]))
	}
	return t.back(f)
}

// Commit implements [retrysafe.Tx]. One that comes late hangs: it commits when its
// caller has given up.
func (t *tx) Commit(ctx context.Context) error {
	w := t.w
	f := w.reaches()
	if w.traces {
		w.tracef("commit%s", transitNames[f])
	}
	switch {
	case t.broken:
		return errBroken
	case t.ended:
		return retrysafe.ErrTxDone
	case ctx.Err() != nil:
		return ctx.Err()
	case f == losesRequest:
		t.breaks()
		return w.gives()
	case f == comesLate:
		t.broken = true
		w.happens(commitHung)
		w.later(w.soon(), func() { _ = t.end(true) })
		return w.gives()
	}
	err := t.end(true)
	if lost := w.returns(f); lost != nil {
		return lost
	}
	return err
}

// Rollback implements [retrysafe.Tx].
func (t *tx) Rollback(context.Context) error {
	f := t.w.reaches()
	switch {
	case t.broken:
		return errBroken
	case t.ended:
		return retrysafe.ErrTxDone
	case f == losesRequest || f == comesLate:
		t.breaks()
		return t.w.gives()
	}
	err := t.end(false)
	if lost := t.w.returns(f); lost != nil {
		return lost
	}
	return err
}

// abandon ends a transaction that its caller has not ended, as callers defer it.
func (t *tx) abandon() {
	if !t.ended && !t.broken && !t.w.at.doomed {
		_ = t.Rollback(outside)
	}
}

// CreateAndCommit implements [retrysafe.CreateCommitter].
func (t finishing) CreateAndCommit(ctx context.Context, next retrysafe.Write) (retrysafe.Record, error) {
	w := t.w
	f := w.reaches()
	if w.traces {
		w.tracef("create %s/%s as %s and commit%s", next.Scope, next.Key, next.State, transitNames[f])
	}
	switch {
	case t.broken:
		return retrysafe.Record{}, errBroken
	case t.ended:
		return retrysafe.Record{}, retrysafe.ErrTxDone
	case ctx.Err() != nil:
		return retrysafe.Record{}, ctx.Err()
	case f == losesRequest:
		t.breaks()
		return retrysafe.Record{}, w.gives()
	case f == comesLate:
		t.broken = true
		w.happens(commitHung)
		late := next
		w.later(w.soon(), func() { _, _ = t.push(&late) })
		return retrysafe.Record{}, w.gives()
	}
	got, err := t.push(&next)
	if lost := w.returns(f); lost != nil {
		return retrysafe.Record{}, lost
	}
	return got, err
}

func (t finishing) push(next *retrysafe.Write) (retrysafe.Record, error) {
	if t.ended {
		return retrysafe.Record{}, retrysafe.ErrTxDone
	}
	got, err := t.below.Create(outside, *next)
	if err != nil {
		_ = t.end(false) // what was refused is rolled back
		return got, err
	}
	t.staged = append(t.staged, stagedRecord{*next, got})
	return got, t.end(true)
}
