package retrysafe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var inTx = retrysafe.Policy{Effects: retrysafe.EffectsInTx}

// bank is a store whose transactions can be made to go wrong, and what is booked
// in them.
type bank struct {
	*bundle
	retrysafe.Store   // for the plain steps, which do not go wrong
	rows, runs, steps atomic.Int32

	begin    func(context.Context) error                                   // before a transaction begins
	reserve  func(context.Context) error                                   // before a key is taken
	store    func(retrysafe.Write) error                                   // instead of an answer that is taken
	commit   func(context.Context, *memstore.Tx) error                     // instead of a commit
	finish   func(context.Context, *memstore.Tx, retrysafe.Write) error    // instead of both in one
	rollback func(*memstore.Tx) error                                      // instead of a rollback
	fn       func(context.Context, *memstore.Tx) (retrysafe.Result, error) // what runs
}

func newBank(t *testing.T, p retrysafe.Policy) *bank {
	t.Helper()
	b := setup(t, p)
	return &bank{bundle: b, Store: b.mem}
}

// do asks for the operation.
func (b *bank) do(ctx context.Context, c retrysafe.Call) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, b.Engine, b, c, func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
		b.runs.Add(1)
		tx.OnCommit(func() { b.rows.Add(1) })
		if b.fn != nil {
			return b.fn(ctx, tx)
		}
		return answer("booked"), nil
	})
}

// booked makes sure that the operation ran and was committed so often.
func (b *bank) booked(t *testing.T, runs, rows int32) {
	t.Helper()
	if b.runs.Load() != runs || b.rows.Load() != rows {
		t.Errorf("ran %d times and booked %d, want %d and %d", b.runs.Load(), b.rows.Load(), runs, rows)
	}
}

// free makes sure that the key has no record and no transaction holds it.
func (b *bank) free(t *testing.T) {
	t.Helper()
	if got, err := b.mem.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("the key has a record, %s, %v", got.State, err)
	}
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	if _, err := tx.Reserve(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Reserve = %v, want the key free", err)
	}
	must(t, tx.Rollback(t.Context()))
}

func (b *bank) BeginTx(ctx context.Context) (retrysafe.Tx, *memstore.Tx, error) {
	b.steps.Add(1)
	if b.begin != nil {
		if err := b.begin(ctx); err != nil {
			return nil, nil, err
		}
	}
	tx, err := b.mem.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	own := &bankTx{tx, b}
	if b.finish != nil {
		return &bankFinisher{own}, tx, nil
	}
	return own, tx, nil
}

type bankTx struct {
	*memstore.Tx
	b *bank
}

func (tx *bankTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	tx.b.steps.Add(1)
	if tx.b.reserve != nil {
		if err := tx.b.reserve(ctx); err != nil {
			return retrysafe.Record{}, err
		}
	}
	return tx.Tx.Reserve(ctx, ref)
}

func (tx *bankTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return tx.take(ctx, w, tx.Tx.Create)
}

func (tx *bankTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return tx.take(ctx, w, tx.Tx.Swap)
}

func (tx *bankTx) take(ctx context.Context, w retrysafe.Write, step func(context.Context, retrysafe.Write) (retrysafe.Record, error)) (retrysafe.Record, error) {
	tx.b.steps.Add(1)
	if tx.b.store != nil {
		if err := tx.b.store(w); err != nil {
			return retrysafe.Record{}, err
		}
	}
	return step(ctx, w)
}

func (tx *bankTx) Commit(ctx context.Context) error {
	tx.b.steps.Add(1)
	if tx.b.commit != nil {
		return tx.b.commit(ctx, tx.Tx)
	}
	return tx.Tx.Commit(ctx)
}

func (tx *bankTx) Rollback(ctx context.Context) error {
	tx.b.steps.Add(1)
	if tx.b.rollback != nil {
		return tx.b.rollback(tx.Tx)
	}
	return tx.Tx.Rollback(ctx)
}

type bankFinisher struct{ *bankTx }

func (tx *bankFinisher) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	tx.b.steps.Add(1)
	if err := tx.b.finish(ctx, tx.Tx, w); err != nil {
		return retrysafe.Record{}, err
	}
	got, err := tx.Tx.Create(ctx, w)
	if err != nil {
		return got, err
	}
	return got, tx.Tx.Commit(ctx)
}

// with stores a record as another owner left it.
func (b *bank) with(t *testing.T, change func(*retrysafe.Write)) retrysafe.Record {
	t.Helper()
	w := retrysafe.Write{Record: retrysafe.Record{
		Ref: ref, Operation: call().Operation, Fingerprint: call().Fingerprint, State: retrysafe.StateInProgress, Effects: retrysafe.EffectsInTx,
		Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{7}, Attempt: 1, Retain: time.Hour,
	}, Term: time.Hour}
	change(&w)
	got, err := b.mem.Create(t.Context(), w)
	must(t, err)
	return got
}
