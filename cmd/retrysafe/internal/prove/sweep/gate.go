package sweep

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/outbox"
)

// A gate stands before each step that a scenario takes towards its store and its
// provider. It may be passed by several goroutines at once.
type gate interface {
	// pass does the step, or not, and returns the error that its caller gets instead
	// of the answer, if any.
	pass(ctx context.Context, name string, do func()) error
}

// open is a gate that lets everything through.
type open struct{}

func (open) pass(_ context.Context, _ string, do func()) error {
	do()
	return nil
}

// through takes a step through a gate. Done says whether it was done, whatever its
// caller is told.
func through[T any](ctx context.Context, g gate, name string, do func() (T, error)) (got T, done bool, err error) {
	var none T
	if wrong := g.pass(ctx, name, func() { got, err = do(); done = true }); wrong != nil {
		return none, done, wrong
	}
	return got, done, err
}

// gated is a store behind a gate. Of the records it lists only those of its scope,
// so that duties leave alone what others have in the same store.
type gated struct {
	retrysafe.TxStore[sandbox.AddEffect]
	gate  gate
	scope string
	seen  *seen
}

var _ retrysafe.TxStore[sandbox.AddEffect] = (*gated)(nil)

func (s *gated) step(ctx context.Context, name string, do func() (retrysafe.Record, error)) (retrysafe.Record, error) {
	got, _, err := through(ctx, s.gate, name, do)
	s.seen.record(&got)
	return got, err
}

func (s *gated) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.step(ctx, "create", func() (retrysafe.Record, error) { return s.TxStore.Create(ctx, w) })
}

func (s *gated) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.step(ctx, "swap", func() (retrysafe.Record, error) { return s.TxStore.Swap(ctx, w) })
}

func (s *gated) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return s.step(ctx, "load", func() (retrysafe.Record, error) { return s.TxStore.Load(ctx, ref) })
}

func (s *gated) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	q.Scope = s.scope
	got, _, err := through(ctx, s.gate, "list", func() ([]retrysafe.Record, error) { return s.TxStore.List(ctx, q) })
	return got, err
}

func (s *gated) Purge(ctx context.Context, limit int) (int, error) {
	got, _, err := through(ctx, s.gate, "purge", func() (int, error) { return s.TxStore.Purge(ctx, limit) })
	return got, err
}

// begun is what BeginTx returns.
type begun struct {
	tx   retrysafe.Tx
	book sandbox.AddEffect
}

func (s *gated) BeginTx(ctx context.Context) (retrysafe.Tx, sandbox.AddEffect, error) {
	var below retrysafe.Tx
	got, _, err := through(ctx, s.gate, "begin", func() (begun, error) {
		tx, book, err := s.TxStore.BeginTx(ctx)
		below = tx
		return begun{tx, book}, err
	})
	if err != nil {
		if below != nil {
			end(ctx, below) // its caller never gets it
		}
		return nil, nil, err
	}
	s.seen.begins()
	tx := gatedTx{got.tx, s.gate, s.seen}
	book := func(ctx context.Context, key, by string) error {
		_, _, err := through(ctx, s.gate, "book", func() (struct{}, error) { return struct{}{}, got.book(ctx, key, by) })
		return err
	}
	if f, ok := got.tx.(retrysafe.CreateCommitter); ok {
		return gatedFinisher{tx, f}, book, nil
	}
	return tx, book, nil
}

// end rolls a transaction back whose connection is gone, as its server would.
func end(ctx context.Context, tx retrysafe.Tx) {
	_ = tx.Rollback(context.WithoutCancel(ctx)) // one that has ended is fine
}

// gatedTx is a transaction behind a gate. A commit that does not arrive, and a
// rollback whatever becomes of it, end it: its connection is gone.
type gatedTx struct {
	retrysafe.Tx
	gate gate
	seen *seen
}

var _ outbox.Enqueuer = gatedTx{}

func (t gatedTx) step(ctx context.Context, name string, do func() (retrysafe.Record, error)) (retrysafe.Record, error) {
	got, _, err := through(ctx, t.gate, "tx."+name, do)
	return got, err
}

func (t gatedTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := t.step(ctx, "reserve", func() (retrysafe.Record, error) { return t.Tx.Reserve(ctx, ref) })
	t.seen.reserves(err)
	return got, err
}

func (t gatedTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.step(ctx, "create", func() (retrysafe.Record, error) { return t.Tx.Create(ctx, w) })
}

func (t gatedTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.step(ctx, "swap", func() (retrysafe.Record, error) { return t.Tx.Swap(ctx, w) })
}

func (t gatedTx) Enqueue(ctx context.Context, messages ...outbox.Message) error {
	_, _, err := through(ctx, t.gate, "tx.enqueue", func() (struct{}, error) {
		return struct{}{}, t.Tx.(outbox.Enqueuer).Enqueue(ctx, messages...)
	})
	return err
}

func (t gatedTx) Commit(ctx context.Context) error {
	_, done, err := through(ctx, t.gate, "tx.commit", func() (struct{}, error) { return struct{}{}, t.Tx.Commit(ctx) })
	if !done {
		end(ctx, t.Tx)
	}
	return err
}

func (t gatedTx) Rollback(ctx context.Context) error {
	_, done, err := through(ctx, t.gate, "tx.rollback", func() (struct{}, error) { return struct{}{}, t.Tx.Rollback(ctx) })
	if !done {
		end(ctx, t.Tx)
	}
	return err
}

// gatedFinisher is the transaction of a store that stores and commits in one.
type gatedFinisher struct {
	gatedTx
	f retrysafe.CreateCommitter
}

func (t gatedFinisher) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, done, err := through(ctx, t.gate, "tx.create_and_commit", func() (retrysafe.Record, error) { return t.f.CreateAndCommit(ctx, w) })
	if !done {
		end(ctx, t.Tx)
	}
	return got, err
}

// gatedBox is an outbox behind a gate.
type gatedBox struct {
	outbox.Store
	gate gate
}

func (b gatedBox) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
	got, _, err := through(ctx, b.gate, "box.lease", func() (outbox.Lease, error) { return b.Store.Lease(ctx, worker, term) })
	return got, err
}

func (b gatedBox) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	got, _, err := through(ctx, b.gate, "box.due", func() ([]outbox.Delivery, error) { return b.Store.Due(ctx, shards, limit) })
	return got, err
}

func (b gatedBox) Ack(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	got, _, err := through(ctx, b.gate, "box.end", func() ([]outbox.AckResult, error) { return b.Store.Ack(ctx, endings) })
	return got, err
}
