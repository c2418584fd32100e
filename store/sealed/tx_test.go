package sealed_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

func begin(t testing.TB, below *memstore.Store, keys *sealed.Keyring) retrysafe.Tx {
	t.Helper()
	tx, err := below.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return keys.Tx(tx)
}

// A transaction seals as its store does: each finds what the other wrote.
func TestTxSealsAsItsStoreDoes(t *testing.T) {
	t.Parallel()
	below, keys := memstore.New(nil), ring(t, 1, 1)
	s := over(t, below, keys)
	want := full("tenant-a", "order-1")

	tx := begin(t, below, keys)
	if _, err := tx.Reserve(t.Context(), want.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("reserve of a free key: error = %v, want ErrNotFound", err)
	}
	if _, err := s.Create(t.Context(), want); !errors.Is(err, retrysafe.ErrBusy) {
		t.Errorf("create of a key that a transaction holds: error = %v, want ErrBusy", err)
	}
	got, err := tx.Create(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want.Record)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, load(t, s, want.Ref), want.Record)

	tx = begin(t, below, keys)
	got, err = tx.Reserve(t.Context(), want.Ref)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want.Record)
	want.Reason, want.Expect, want.SetCheckpoint = "settled in a transaction", got.Fence(), true
	got, err = tx.Swap(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want.Record)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, load(t, s, want.Ref), want.Record)
}

// A step that cannot be read back poisons the transaction: a caller that ignores the
// error cannot commit the effects that were to go with it.
func TestTxThatCannotReadDoesNotCommit(t *testing.T) {
	t.Parallel()
	below, keys := memstore.New(nil), ring(t, 1, 1)
	s := over(t, below, keys)
	r := full("tenant-a", "order-1")
	r.State, r.Result = retrysafe.StateInProgress, nil
	create(t, s, r)
	raw := only(t, below)
	raw.Request = slices.Clone(raw.Request)
	raw.Request[20] ^= 1
	overwrite(t, below, raw)
	raw = only(t, below)

	tx := begin(t, below, keys)
	_, err := tx.Reserve(t.Context(), r.Ref)
	refused(t, "reserve", err)
	r.State, r.Result, r.Expect = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}, raw.Fence()
	_, err = tx.Swap(t.Context(), r)
	refused(t, "swap", err)
	refused(t, "commit", tx.Commit(t.Context()))
	if got := only(t, below); got.State != retrysafe.StateInProgress || got.Revision != raw.Revision {
		t.Errorf("a transaction that could not be read back has committed: %+v", got)
	}

	// No transaction works by handle: an owner knows the name of its key.
	face := list(t, s, retrysafe.Query{})[0]
	tx = begin(t, below, keys)
	_, err = tx.Reserve(t.Context(), face.Ref)
	refused(t, "reserve by handle", err)
	_, err = tx.Create(t.Context(), face.Update())
	refused(t, "create by handle", err)
	_, err = tx.Swap(t.Context(), face.Update())
	refused(t, "swap by handle", err)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("rollback: %v", err)
	}
	for what, step := range map[string]func(tx retrysafe.Tx) error{ // a caller that ignores the error cannot commit
		"create by handle": func(tx retrysafe.Tx) error { _, err := tx.Create(t.Context(), face.Update()); return err },
		"swap by handle":   func(tx retrysafe.Tx) error { _, err := tx.Swap(t.Context(), face.Update()); return err },
	} {
		tx := begin(t, below, keys)
		refused(t, what, step(tx))
		refused(t, "commit after "+what, tx.Commit(t.Context()))
	}
}

// An engine completes in a sealed transaction.
func TestEngineCompletesInASealedTransaction(t *testing.T) {
	t.Parallel()
	below, keys := memstore.New(nil), ring(t, 1, 1)
	engine, err := retrysafe.New(over(t, below, keys), &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	if err != nil {
		t.Fatal(err)
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-a", Key: "order-1"}, Fingerprint: retrysafe.Fingerprint{Alg: 1}}
	x, _, err := engine.Begin(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Stop()
	want := retrysafe.Result{Status: 201, Header: map[string][]string{"A": {"b", "c"}}, Body: []byte("done")}
	tx := begin(t, below, keys)
	if err := x.CompleteTx(t.Context(), tx, want); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := x.Outcome(t.Context()); err != nil || !out.Equal(&want) {
		t.Errorf("Outcome = %+v, %v, want %+v", out, err, want)
	}
	_, replay, err := engine.Begin(t.Context(), call)
	if err != nil || !replay.Equal(&want) || !replay.Replayed {
		t.Errorf("the retry gets %+v, %v, want the stored answer", replay, err)
	}
}

// taking is a transaction that takes keys, and notes which.
type taking struct {
	retrysafe.Tx
	took *[]retrysafe.Ref
}

func (tx taking) Take(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	*tx.took = append(*tx.took, ref)
	return tx.Reserve(ctx, ref)
}

// Take finds what the store has sealed, over a transaction that takes keys by Take and over
// another by Reserve, and takes no handle.
func TestTakeSealsAsReserveDoes(t *testing.T) {
	t.Parallel()
	below, keys := memstore.New(nil), ring(t, 1, 1)
	want := full("tenant-a", "order-1")
	create(t, over(t, below, keys), want)
	raw := only(t, below)
	for _, takes := range []bool{false, true} {
		var took []retrysafe.Ref
		plain, err := below.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var tx retrysafe.Tx = plain
		if takes {
			tx = taking{plain, &took}
		}
		taker := keys.Tx(tx).(retrysafe.Taker)
		got, err := taker.Take(t.Context(), want.Ref)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want.Record)
		if takes != slices.Equal(took, []retrysafe.Ref{raw.Ref}) {
			t.Errorf("takes %t: taken below is %v, want %v", takes, took, raw.Ref)
		}
		if _, err := taker.Take(t.Context(), retrysafe.Ref{Scope: "tenant-a", Key: "order-2"}); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("takes %t: Take of a free key = %v", takes, err)
		}
		if err := plain.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	placeholder := only(t, over(t, below, ring(t, 2, 2)))
	took := []retrysafe.Ref{}
	if _, err := ring(t, 2, 2).Tx(taking{nil, &took}).(retrysafe.Taker).Take(t.Context(), placeholder.Ref); !errors.Is(err, retrysafe.ErrUnreadable) || len(took) != 0 {
		t.Errorf("Take of a handle = %v, taken below is %v", err, took)
	}
}
