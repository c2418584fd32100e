package retrysafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// lookingBank is a bank whose transactions take a key by a look that may be too old:
// while old is set they see no record.
type lookingBank struct {
	*bank
	old bool
}

func (b *lookingBank) BeginTx(ctx context.Context) (retrysafe.Tx, *memstore.Tx, error) {
	tx, own, err := b.bank.BeginTx(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &lookingTx{tx.(*bankTx), b}, own, nil
}

type lookingTx struct {
	*bankTx
	look *lookingBank
}

func (tx *lookingTx) Take(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := tx.Reserve(ctx, ref)
	if err == nil && tx.look.old {
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	return got, err
}

func (b *lookingBank) do(ctx context.Context) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, b.Engine, b, call(), func(_ context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
		b.runs.Add(1)
		tx.OnCommit(func() { b.rows.Add(1) })
		return answer("booked"), nil
	})
}

// The answer of another call was committed between the look and the lock: the operation
// runs for nothing, is rolled back, and the other answer is replayed.
func TestDoTxTakesAKeyByALookThatIsTooOld(t *testing.T) {
	t.Parallel()
	b := &lookingBank{bank: newBank(t, inTx), old: true}
	theirs := answer("theirs")
	b.with(t, func(w *retrysafe.Write) { w.State, w.Result = retrysafe.StateCompleted, &theirs })
	b.store = func(retrysafe.Write) error {
		b.old = false // the next look is later
		return nil
	}
	if out, err := b.do(t.Context()); err != nil || string(out.Body) != "theirs" || !out.Replayed {
		t.Errorf("DoTx = %+v, %v; want the answer that was committed", out, err)
	}
	b.booked(t, 1, 0)
}

// How a commit ended is found out by Reserve, whose look is never too old.
func TestW32_DoTxResolvesACommitByReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &lookingBank{bank: newBank(t, inTx), old: true}
		b.commit = func(ctx context.Context, tx *memstore.Tx) error {
			must(t, tx.Commit(ctx))
			return errLine
		}
		b.rollback = func(tx *memstore.Tx) error {
			_ = tx.Rollback(t.Context())
			return nil
		}
		if out, err := b.do(t.Context()); err != nil || string(out.Body) != "booked" || out.Replayed {
			t.Errorf("DoTx = %+v, %v; it has committed", out, err)
		}
		if _, err := b.mem.Load(t.Context(), ref); errors.Is(err, retrysafe.ErrNotFound) {
			t.Error("the answer is not stored")
		}
		b.booked(t, 1, 1)
	})
}
