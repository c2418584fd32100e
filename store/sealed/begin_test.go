package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// quick is a store whose transactions create and commit in one step.
type quick struct{ *memstore.Store }

func (s quick) BeginTx(ctx context.Context) (retrysafe.Tx, *memstore.Tx, error) {
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	return quickTx{tx}, tx, nil
}

type quickTx struct{ *memstore.Tx }

func (tx quickTx) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := tx.Create(ctx, w)
	if err != nil {
		return got, err
	}
	return got, tx.Commit(ctx)
}

// uncounted hides everything but the transactions and the steps of a store.
type uncounted struct {
	retrysafe.TxStore[*memstore.Tx]
}

func beginning(t testing.TB, below retrysafe.TxStore[*memstore.Tx]) retrysafe.TxStore[*memstore.Tx] {
	t.Helper()
	s, err := sealed.NewTx(below, ring(t, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// One commit works sealed as it does plain, and below it tells nothing.
func TestDoTxSealed(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(*memstore.Store) retrysafe.TxStore[*memstore.Tx]{
		"create, then commit": func(s *memstore.Store) retrysafe.TxStore[*memstore.Tx] { return s },
		"both in one":         func(s *memstore.Store) retrysafe.TxStore[*memstore.Tx] { return quick{s} },
		"uncounted":           func(s *memstore.Store) retrysafe.TxStore[*memstore.Tx] { return uncounted{s} },
	} {
		below := memstore.New(nil)
		s := beginning(t, wrap(below))
		if _, counts := s.(retrysafe.Counter); counts == (name == "uncounted") {
			t.Errorf("%s: counts: %t", name, counts)
		}
		if sealer, ok := s.(retrysafe.Sealer); !ok || !sealer.Sealed() {
			t.Errorf("%s: it does not say that it seals", name)
		}
		if name == "both in one" {
			tx, _, err := s.BeginTx(t.Context())
			if _, ok := tx.(retrysafe.CreateCommitter); !ok || err != nil {
				t.Errorf("%s: the transaction is %T, %v", name, tx, err)
			}
		}
		e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-a", Key: "order-1"}, Fingerprint: retrysafe.Fingerprint{Alg: 1}}
		want := retrysafe.Result{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("paid by card 4242")}
		for i := range 3 {
			out, err := retrysafe.DoTx(t.Context(), e, s, call, func(_ context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
				tx.OnCommit(func() { rows++ })
				return want, nil
			})
			if err != nil || !out.Equal(&want) || out.Replayed != (i > 0) {
				t.Errorf("%s: DoTx = %+v, %v", name, out, err)
			}
		}
		if rows != 1 {
			t.Errorf("%s: %d rows, want 1", name, rows)
		}
		if raw := only(t, below); raw.Key == "order-1" || bytes.Contains(raw.Result.Body, []byte("card 4242")) {
			t.Errorf("%s: what is stored below tells: %+v", name, raw)
		}
		if counter, ok := s.(retrysafe.Counter); ok {
			if n, err := counter.Count(t.Context(), "tenant-a"); n != 1 || err != nil {
				t.Errorf("%s: Count = %d, %v", name, n, err)
			}
		}
	}
}

// A caller that ignores that a step could not be read back cannot commit with
// CreateAndCommit either.
func TestFinisherThatCannotReadDoesNotCommit(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	s := beginning(t, quick{below})
	r := full("tenant-a", "order-1")
	create(t, s, r)
	raw := only(t, below)
	raw.Request = slices.Clone(raw.Request)
	raw.Request[20] ^= 1
	overwrite(t, below, raw)
	tx, _, err := s.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Expect = retrysafe.Fence{Revision: only(t, below).Revision, Owner: r.Owner}
	_, err = tx.Swap(t.Context(), r)
	refused(t, "swap", err)
	_, err = tx.(retrysafe.CreateCommitter).CreateAndCommit(t.Context(), full("tenant-a", "order-2"))
	refused(t, "create and commit", err)
	only(t, below)
}

func TestNewTxNeedsBoth(t *testing.T) {
	t.Parallel()
	if _, err := sealed.NewTx[*memstore.Tx](nil, ring(t, 1, 1)); err == nil {
		t.Error("it seals nothing")
	}
	if _, err := sealed.NewTx[*memstore.Tx](memstore.New(nil), nil); err == nil {
		t.Error("it seals without keys")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := beginning(t, memstore.New(nil)).BeginTx(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("BeginTx = %v", err)
	}
}
