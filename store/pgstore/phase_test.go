package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// twoPhases books a row in each of two phases.
func twoPhases(ctx context.Context, e *retrysafe.Engine, s *pgstore.Store, key string) (retrysafe.Outcome, error) {
	return e.Do(ctx, retrysafe.Call{Ref: refOf(key), Operation: "two phases"}, func(ctx context.Context, _ *retrysafe.Execution) (r retrysafe.Result, err error) {
		var said []string
		for _, name := range []string{"first", "second"} {
			receipt, err := retrysafe.PhaseTx(ctx, s, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := tx.Exec(ctx, enter, key, name)
				return name, err
			})
			if err != nil {
				return r, err
			}
			said = append(said, receipt)
		}
		return retrysafe.Result{Status: 201, Body: []byte(strings.Join(said, ", "))}, nil
	})
}

// A connection breaks once, at one byte after another. Whatever a phase was told of
// its commit, its row is there once in the end.
func TestW32_PhasesOverAConnectionThatBreaksAtAnyByte(t *testing.T) {
	t.Parallel()
	for at, fault := range breaks {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			proxy, s, truth := behindProxy(t, nil)
			newTill(t, s, patient)
			opts := patient
			opts.Policy.Effects, opts.Policy.Lapse = retrysafe.EffectsKeyed, retrysafe.LapseResume
			e, err := retrysafe.New(s, &opts)
			must(t, err)
			finish := func(key string) {
				t.Helper()
				for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
					_, err := twoPhases(t.Context(), e, s, key)
					switch {
					case err == nil:
						if got := receipts(t, truth, key); len(got) != 2 || got[0] == got[1] {
							t.Errorf("%s booked %q, want one row for each phase", key, got)
						}
						return
					case errors.Is(err, retrysafe.ErrUnknown), errors.Is(err, retrysafe.ErrPhases), time.Now().After(deadline):
						t.Fatalf("%s: %v", key, err)
					}
				}
			}
			points := 0
			for _, dir := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
				finish(fmt.Sprint("warm up ", dir))
				proxy.Plan(nil)
				finish(fmt.Sprint("measured ", dir))
				total := proxy.Seen(dir)
				stride := max(1, total/24)
				for n := stride * int64(at) / 3; n < total; n += stride {
					proxy.Plan(atByte(dir, n, fault))
					finish(fmt.Sprint(dir, " ", n))
					proxy.Plan(nil)
					finish(fmt.Sprint(dir, " ", n, " again")) // its connections are whole again
					points++
				}
			}
			if points < 40 {
				t.Errorf("broke at %d points only", points)
			}
		})
	}
}

// The record is locked while a phase has its transaction open. Others see that its
// lease is over, and do not take it, however long the phase lasts.
func TestPhaseOutlivesItsLease(t *testing.T) {
	t.Parallel()
	_, s, truth := behindProxy(t, nil)
	newTill(t, s, patient)
	policy := retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume, Lease: 20 * time.Millisecond, MaxRun: patience}
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: policy, StoreTimeout: patience})
	must(t, err)
	call := retrysafe.Call{Ref: refOf("slow"), Operation: "slow"}
	_, err = e.Do(t.Context(), call, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		_, err := retrysafe.PhaseTx(ctx, s, "slow", func(ctx context.Context, tx pgx.Tx) (int, error) {
			for due := false; !due; {
				r, err := s.Load(ctx, call.Ref)
				must(t, err)
				due = r.Due()
			}
			r, err := s.Load(ctx, call.Ref)
			must(t, err)
			swept, ok := retrysafe.DecideLapse(r)
			if !ok {
				t.Error("it is not due")
			}
			if got, err := s.Swap(ctx, swept); !errors.Is(err, retrysafe.ErrBusy) {
				t.Errorf("a sweeper's Swap = %s, %v; want ErrBusy", got.State, err)
			}
			if x, _, err := e.Begin(ctx, call); x != nil || !errors.Is(err, retrysafe.ErrInFlight) {
				t.Errorf("a retry's Begin = %v, %v; want it in flight", x, err)
			}
			_, err = tx.Exec(ctx, enter, "slow", "once")
			return 1, err
		})
		return retrysafe.Result{Status: 201}, err
	})
	must(t, err)
	if got := receipts(t, truth, "slow"); len(got) != 1 {
		t.Errorf("booked %q", got)
	}
}
