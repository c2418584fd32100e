package retrysafe_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestAsyncReserveNeedsProtectedEffects(t *testing.T) {
	t.Parallel()
	for effects, refused := range map[retrysafe.Effects]bool{retrysafe.EffectsUnprotected: true, retrysafe.EffectsKeyed: false, retrysafe.EffectsInTx: false} {
		p := retrysafe.Policy{Effects: effects, AsyncReserve: true}
		err := p.Check()
		if errors.Is(err, retrysafe.ErrPolicy) != refused || refused && !strings.Contains(err.Error(), "EffectsKeyed or EffectsInTx") {
			t.Errorf("%s: Check = %v", effects, err)
		}
		if c := p.Caveats(); len(c) != 1 || !strings.Contains(c[0], "crash") {
			t.Errorf("%s: caveats %q", effects, c)
		}
	}
}

// TestAsyncReserveRelaxesReservationsOnly: reservations and claims may be lost by
// a crash of the store's server; beats, checkpoints, settlements and what a lapse
// becomes never.
func TestAsyncReserveRelaxesReservationsOnly(t *testing.T) {
	t.Parallel()
	for _, async := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fault := faultstore.New(memstore.New(nil))
			e, err := retrysafe.New(fault, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseQuarantine, AsyncReserve: async}})
			must(t, err)
			var seen []string
			var lapse atomic.Bool
			fault.Plan(func(s faultstore.Step) faultstore.Fault {
				claims := s.Op == faultstore.Create || s.Write.Overwrite
				if want := async && claims; s.Write.Relaxed != want {
					t.Errorf("%s to %s, claim %t: relaxed %t", s.Op, s.Write.State, claims, s.Write.Relaxed)
				}
				if lapse.Load() && s.Op == faultstore.Swap && s.Write.State == retrysafe.StateInProgress && !claims {
					return faultstore.LoseRequest
				}
				what := string(s.Op) + " " + s.Write.State.String()
				if claims {
					what += " claim"
				}
				if !slices.Contains(seen, what) {
					seen = append(seen, what)
				}
				return faultstore.None
			})
			begin := func() *retrysafe.Execution {
				x, _, err := e.Begin(t.Context(), call())
				must(t, err)
				return x
			}
			x := begin()
			time.Sleep(15 * time.Second) // a beat
			must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "charged"}))
			must(t, x.Release(t.Context(), nil))
			must(t, begin().Complete(t.Context(), answer("x"))) // a claim
			time.Sleep(25 * time.Hour)
			begin()           // an expired key
			lapse.Store(true) // up to the end: a heartbeat that arrives after the lapse would renew the lease
			time.Sleep(time.Minute)
			if _, _, err := e.Begin(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnknown) {
				t.Errorf("Begin = %v, want unknown", err)
			}
			want := []string{
				"create in_progress claim", "swap in_progress", "swap retryable", "swap in_progress claim", "swap completed", "swap unknown",
			}
			for _, w := range want {
				if !slices.Contains(seen, w) {
					t.Errorf("no %q among %q: this test looks at too little", w, seen)
				}
			}
		})
	}
}

// Accepted work is durable before the client is told so, whatever the policy says of
// reservations: nothing else knows of the request.
func TestAsyncReserveDoesNotRelaxAcceptedWork(t *testing.T) {
	t.Parallel()
	fault := faultstore.New(memstore.New(nil))
	e, err := retrysafe.New(fault, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, AsyncReserve: true}})
	must(t, err)
	accepted := 0
	fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Write.State == retrysafe.StateAccepted {
			accepted++
			if s.Write.Relaxed {
				t.Errorf("%s of accepted work is relaxed", s.Op)
			}
		}
		return faultstore.None
	})
	if _, err := e.Accept(t.Context(), call(), []byte("the request")); !errors.Is(err, retrysafe.ErrAccepted) {
		t.Fatal(err)
	}
	if accepted == 0 {
		t.Error("nothing was accepted: this test looks at too little")
	}
}

// What one commit stores is durable, whatever the policy says of reservations.
func TestAsyncReserveDoesNotRelaxOneCommit(t *testing.T) {
	t.Parallel()
	b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, AsyncReserve: true})
	stored := 0
	b.store = func(w retrysafe.Write) error {
		if stored++; w.Relaxed {
			t.Errorf("the answer is relaxed, claim %t", w.Overwrite)
		}
		return nil
	}
	_, err := b.do(t.Context(), call())
	must(t, err)
	other := newBank(t, b.Policy())
	other.store = b.store
	other.with(t, func(r *retrysafe.Write) { r.State = retrysafe.StateRetryable })
	_, err = other.do(t.Context(), call())
	must(t, err)
	if stored != 2 {
		t.Errorf("%d answers, want 2", stored)
	}
}
