package memstore_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestBeginTxSharesOneTransaction(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	tx, own, err := s.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	written := false
	own.OnCommit(func() { written = true })
	if _, err := tx.Create(t.Context(), reservation("k")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	if !written {
		t.Error("what was registered with one was not written by the other")
	}
	wantErr(t, "Commit of the same", own.Commit(t.Context()), retrysafe.ErrTxDone)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = s.BeginTx(gone)
	wantErr(t, "cancelled BeginTx", err, context.Canceled)
}

// Many duplicates on many keys at once: each key's operation happens once.
func TestDoTxOverMemory(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	e, err := retrysafe.New(s, &retrysafe.Options{
		StoreTimeout: time.Minute, // on a machine that may be slow
		Policy:       retrysafe.Policy{Effects: retrysafe.EffectsInTx, InFlight: retrysafe.InFlightWait},
	})
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"a", "b", "c", "d"}
	var rows atomic.Int32
	var wg sync.WaitGroup
	for _, key := range keys {
		for range 50 {
			wg.Go(func() {
				call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acct_1", Key: key}}
				out, err := retrysafe.DoTx(t.Context(), e, s, call, func(_ context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
					tx.OnCommit(func() { rows.Add(1) })
					return retrysafe.Result{Status: 201, Body: []byte(key)}, nil
				})
				if err != nil && !errors.Is(err, retrysafe.ErrInFlight) || err == nil && string(out.Body) != key {
					t.Errorf("%s: %+v, %v", key, out, err)
				}
			})
		}
	}
	wg.Wait()
	if got, want := int(rows.Load()), len(keys); got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
}

// A record that was written relaxed is returned as any other: nothing of it says how
// it was written.
func TestRelaxedIsNotReturned(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	strict, relaxed := reservation("k"), reservation("k")
	relaxed.Relaxed = true
	want, got := mustCreate(t, memstore.New(nil), strict), mustCreate(t, s, relaxed)
	want.Revision, want.Deadline, want.CreatedAt, want.UpdatedAt, want.ReadAt = got.Revision, got.Deadline, got.CreatedAt, got.UpdatedAt, got.ReadAt
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Create returned %+v, want %+v", got, want)
	}
	w := got.Update()
	w.Relaxed = true
	next := mustSwap(t, s, w)
	want.Revision, want.Deadline, want.UpdatedAt, want.ReadAt = next.Revision, next.Deadline, next.UpdatedAt, next.ReadAt
	if !reflect.DeepEqual(next, want) {
		t.Errorf("Swap returned %+v, want %+v", next, want)
	}
}
