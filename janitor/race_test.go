package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Owners that were suspected too early, sweepers, reapers, a reconciler and retries
// meet on the same keys, over every store. Whatever comes first: an answer that its
// owner was told is stored stays, no key is run twice at once, nothing unprotected
// is run again, and nothing is lost.
func TestRacesOfDutiesOwnersAndRetries(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		const keys = 150
		engines := map[retrysafe.Effects]*retrysafe.Engine{}
		for effects, lapse := range map[retrysafe.Effects]retrysafe.Lapse{retrysafe.EffectsUnprotected: retrysafe.LapseQuarantine, retrysafe.EffectsKeyed: retrysafe.LapseRerun} {
			// On a busy machine a step may take long; given up, it would be settled in the background.
			e, err := retrysafe.New(store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: effects, Lapse: lapse}, StoreTimeout: time.Minute, SettleTimeout: time.Minute})
			must(t, err)
			engines[effects] = e
		}
		records := make([]retrysafe.Record, keys)
		for i := range records {
			r := record(key(i), retrysafe.StateInProgress, 0) // its lease has run out
			r.Owner = retrysafe.Owner{byte(i), byte(i >> 8), 7}
			if i%2 == 0 {
				r.Effects, r.Lapse = retrysafe.EffectsKeyed, retrysafe.LapseRerun
			}
			records[i] = put(t, store, r)
		}
		resolver := janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			return janitor.Happened(answer("resolved "+r.Key), "found"), nil
		})
		o := janitor.Options{Logger: quiet, Batch: 20, StoreTimeout: time.Minute}
		duties := []janitor.Duty{
			janitor.NewSweeper(store, &o), janitor.NewSweeper(store, &o),
			janitor.NewReconciler(store, resolver, &janitor.ReconcilerOptions{Options: o}),
			janitor.NewReaper(store, &janitor.ReaperOptions{Options: o}),
			janitor.NewReaper(store, &janitor.ReaperOptions{Options: o, Tombstone: time.Hour}),
		}

		var wg sync.WaitGroup
		for _, d := range duties {
			wg.Go(func() {
				for range 4 {
					if _, err := d.RunOnce(t.Context()); err != nil {
						t.Errorf("%s: %v", d.Schedule().Name, err)
					}
				}
			})
		}
		won := make([]bool, keys)   // the owner was told that its answer is stored
		ran := make([]string, keys) // what a retry that ran was told is stored
		order := rand.Perm(keys)    // the owners' and the retries' way through the keys
		retries := rand.Perm(keys)  // differ
		for at := range 4 {
			wg.Go(func() {
				for _, i := range order[at*keys/4 : (at+1)*keys/4] {
					won[i] = settles(t, store, records[i])
				}
			})
			wg.Go(func() {
				for _, i := range retries[at*keys/4 : (at+1)*keys/4] {
					c := retrysafe.Call{Ref: records[i].Ref, Operation: records[i].Operation}
					x, _, err := engines[records[i].Effects].Begin(t.Context(), c)
					if x == nil {
						if r := (*retrysafe.RefusedError)(nil); err != nil && !errors.As(err, &r) {
							t.Error(err)
						}
						continue
					}
					if records[i].Effects == retrysafe.EffectsUnprotected {
						t.Errorf("%s: what nothing protects was run again", key(i))
					}
					if body := fmt.Sprintf("retry of %d", i); x.Complete(t.Context(), answer(body)) == nil {
						ran[i] = body
					}
				}
			})
		}
		wg.Wait()
		for range 2 { // what was left half-way
			for _, d := range duties {
				if _, err := d.RunOnce(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		for i := range records {
			got := load(t, store, key(i))
			switch {
			case won[i] && ran[i] != "":
				t.Errorf("%s: both its first owner and a retry were told that their answer is stored", key(i))
			case won[i] && (got.State != retrysafe.StateCompleted || string(got.Result.Body) != "the owner's"):
				t.Errorf("%s: its owner's answer was stored, and it is %s %+v", key(i), got.State, got.Result)
			case ran[i] != "" && (got.State != retrysafe.StateCompleted || string(got.Result.Body) != ran[i]):
				t.Errorf("%s: the retry's answer was stored, and it is %s %+v", key(i), got.State, got.Result)
			case got.State == retrysafe.StateInProgress:
				t.Errorf("%s is stuck", key(i))
			}
		}
	})
}

// settles completes a record as its owner. Where a sweeper has given the attempt up,
// the owner adopts it. It reports whether the answer is stored.
func settles(t *testing.T, store retrysafe.Store, r retrysafe.Record) bool {
	a := answer("the owner's")
	mine := r
	for {
		next := mine.Update()
		next.State, next.Result, next.Term = retrysafe.StateCompleted, &a, time.Hour
		got, err := store.Swap(t.Context(), next)
		switch {
		case err == nil:
			return true
		case errors.Is(err, retrysafe.ErrBusy):
		case errors.Is(err, retrysafe.ErrConflict) && got.Owner == r.Owner && (got.State == retrysafe.StateInProgress || got.State == retrysafe.StateUnknown):
			mine = got
		case errors.Is(err, retrysafe.ErrConflict), errors.Is(err, retrysafe.ErrNotFound):
			return false
		default:
			t.Error(err)
			return false
		}
	}
}

// A transaction that is about to commit the answer holds the row: that is proof of
// life. The sweeper does not overtake it.
func TestW55_OpenTransactionIsProofOfLife(t *testing.T) {
	t.Parallel()
	// A store may wait for the transaction, or say that it is there.
	test := func(t *testing.T, store retrysafe.Store, waits bool, begin func() (retrysafe.Tx, error)) {
		t.Helper()
		r := put(t, store, record("key", retrysafe.StateInProgress, 0)).Update()
		tx, err := begin()
		must(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // when the test has failed half-way
		a := answer("the owner's")
		r.State, r.Result, r.Term = retrysafe.StateCompleted, &a, time.Hour
		_, err = tx.Swap(t.Context(), r)
		must(t, err)
		s := janitor.NewSweeper(store, &janitor.Options{Logger: quiet})
		swept := make(chan error)
		go func() {
			n, err := s.RunOnce(t.Context())
			if n != 0 {
				err = errors.Join(err, fmt.Errorf("it changed %d records", n))
			}
			swept <- err
		}()
		if waits {
			must(t, tx.Commit(t.Context()))
			must(t, <-swept)
		} else {
			must(t, <-swept)
			must(t, tx.Commit(t.Context()))
		}
		if got := load(t, store, "key"); got.State != retrysafe.StateCompleted || s.Stats().Failures != 0 {
			t.Errorf("it is %s, counted %+v", got.State, s.Stats())
		}
		if !waits && s.Stats().Overtaken != 1 {
			t.Errorf("counted %+v", s.Stats())
		}
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := memstore.New(nil)
		test(t, s, true, func() (retrysafe.Tx, error) { return s.Begin(t.Context()) })
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		test(t, s, true, func() (retrysafe.Tx, error) {
			tx, err := s.DB().BeginTx(t.Context(), nil)
			if err != nil {
				return nil, err
			}
			return s.Tx(tx), nil
		})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		s, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		test(t, s, false, func() (retrysafe.Tx, error) {
			tx, err := s.Pool().Begin(t.Context())
			if err != nil {
				return nil, err
			}
			return s.Tx(tx), nil
		})
	})
}
