package janitor_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// The recovery stories of the documents that this product was built from, in their
// own words.

// accepts stores the call for a worker.
func (w *world) accepts(t *testing.T) {
	t.Helper()
	if _, err := w.Accept(t.Context(), call(), []byte("{}")); !errors.Is(err, retrysafe.ErrAccepted) {
		t.Fatalf("Accept = %v", err)
	}
}

// "The key is stuck in processing state. Nothing is running." The sweeper resets it
// to pending, and the next worker claims it. The first worker, which was only slow,
// cannot store its answer any more. A worker that sends heartbeats keeps its lease for
// as long as it takes.
func TestSeed000_ZombieIsPickedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun})
		w.accepts(t)
		zombie, err := w.zombie.TakeUp(t.Context(), w.record(t))
		must(t, err)
		w.refused(t, retrysafe.ErrInFlight)

		s := w.sweeper()
		w.fault.Plan(nil)
		runFor(t, 5*time.Minute, janitor.NewSweeper(w.mem, nil)) // it is slow, and beats
		w.is(t, retrysafe.StateInProgress)
		once(t, s, 0)

		w.fault.Plan(failAll) // it is stopped
		time.Sleep(w.Policy().Lease + time.Second)
		w.is(t, retrysafe.StateInProgress)
		o := w.opts()
		pending := janitor.NewSweeper(w.mem, &o)
		once(t, pending, 1)
		w.is(t, retrysafe.StateAccepted)
		if pending.Stats().Requeued != 1 || w.saw(retrysafe.EventLapsed) != 1 {
			t.Errorf("each reset is a signal, but counted was %+v", pending.Stats())
		}

		heir, err := w.TakeUp(t.Context(), w.record(t))
		must(t, err)
		must(t, heir.Complete(t.Context(), answer("heir's")))
		w.fault.Plan(nil)
		if err := zombie.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's completion = %v, want ErrLost", err)
		}
		w.replays(t, 201, "heir's")
	})
}

// "The naive cleanup deletes pending and processing keys that are mid-flight." Only
// terminal records past their retention are deleted, however old the others are.
func TestSeed000_OnlyTerminalRowsPastTheirTTLAreDeleted(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store retrysafe.Store) {
		for _, r := range kept {
			put(t, store, r)
		}
		put(t, store, record("complete", retrysafe.StateCompleted, 0))
		put(t, store, record("failed", retrysafe.StateRetryable, 0))
		once(t, reaper(store, janitor.ReaperOptions{}), 2)
		for _, r := range kept {
			if got := load(t, store, r.Key); got.State != r.State {
				t.Errorf("%q is %s", r.Key, got.State)
			}
		}
	})
}

// "Expire abandoned pending keys": a client that polls after that sees a time-out
// rather than nothing, for a whole retention.
func TestSeed000_AbandonedPendingBecomesAStored408(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{Patience: 10 * time.Minute})
		w.accepts(t)
		waiting := w.record(t)
		s, r := w.sweeper(), reaper(w.mem, janitor.ReaperOptions{})
		time.Sleep(10*time.Minute - time.Second)
		once(t, s, 0)
		once(t, r, 0)
		w.refused(t, retrysafe.ErrAccepted)
		time.Sleep(time.Second)
		once(t, r, 0) // it is not the reaper's before it is answered
		once(t, s, 1)
		w.replays(t, 408, "")
		if _, err := w.TakeUp(t.Context(), waiting); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("a worker that comes too late: %v, want ErrLost", err)
		}
		time.Sleep(24*time.Hour - time.Second)
		once(t, r, 0)
		w.replays(t, 408, "")
		time.Sleep(time.Second)
		once(t, r, 1)
	})
}

// Reserve → execute → complete → replay. A different request is misuse at every
// step.
func TestSeed002_ReserveExecuteCompleteReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	other := call()
	other.Fingerprint = retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{9}}
	misused := func() {
		t.Helper()
		if _, _, err := w.Begin(t.Context(), other); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("Begin of another request = %v", err)
		}
	}
	x := w.begins(t)
	w.refused(t, retrysafe.ErrInFlight)
	misused()
	must(t, x.Complete(t.Context(), answer("paid")))
	w.replays(t, 201, "paid")
	misused()
}

// "failed_retryable: only requests that transition to in_progress via an atomic
// UPDATE hold execution rights."
func TestSeed002_RetryableFailureRunsAgainOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, retrysafe.Policy{})
	must(t, w.begins(t).Release(t.Context(), errors.New("connection refused")))
	w.is(t, retrysafe.StateRetryable)
	var wg sync.WaitGroup
	var runs atomic.Int32
	for range 50 {
		wg.Go(func() {
			x, _, err := w.Begin(t.Context(), call())
			if x == nil {
				if !errors.Is(err, retrysafe.ErrInFlight) {
					t.Error(err)
				}
				return
			}
			runs.Add(1)
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("%d ran", runs.Load())
	}
}

// "expired in_progress: do not auto-retry; transition to unknown and reconcile." By
// the daemon that scans, and by the request that meets it.
func TestSeed002_ExpiredInProgressBecomesUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, scan := range []bool{true, false} {
			w := newWorld(t, retrysafe.Policy{})
			_, _, err := w.zombie.Begin(t.Context(), call())
			must(t, err)
			w.fault.Plan(failAll)
			time.Sleep(w.Policy().Lease + time.Second)
			if scan {
				o := w.opts()
				once(t, janitor.NewSweeper(w.mem, &o), 1)
				w.is(t, retrysafe.StateUnknown)
			}
			w.refused(t, retrysafe.ErrUnknown)
			w.is(t, retrysafe.StateUnknown)
			if w.record(t).Reason == "" || w.saw(retrysafe.EventLapsed) != 1 {
				t.Errorf("scan %v: no reason is stored, or no event was reported", scan)
			}
		}
	})
}

// "unknown: no client retry can acquire execution rights; only the reconciliation
// pipeline transitions the record to completed or failed_retryable." A payment that
// was created and declined is completed, and replays the failure.
func TestSeed002_UnknownIsReconciled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effects retrysafe.Effects
		verdict retrysafe.Evidence
		then    func(t *testing.T, w *world)
	}{
		"it happened": {verdict: janitor.Happened(answer("paid"), "pay_1"),
			then: func(t *testing.T, w *world) { w.replays(t, 201, "paid") }},
		"it was declined": {verdict: janitor.Declined(retrysafe.Result{Status: 402, Body: []byte("no money")}, "pay_1"),
			then: func(t *testing.T, w *world) { w.replays(t, 402, "no money") }},
		"no payment object was created": {effects: retrysafe.EffectsKeyed, verdict: janitor.NotHappened("no such payment"),
			then: func(t *testing.T, w *world) {
				x := w.begins(t)
				if x.Attempt() != 2 {
					t.Errorf("attempt %d", x.Attempt())
				}
				must(t, x.Complete(t.Context(), answer("second")))
				w.replays(t, 201, "second")
			}},
		"nobody knows": {verdict: janitor.StillUnknown("timeout"),
			then: func(t *testing.T, w *world) { // the dead letters: an operator reviews it
				w.refused(t, retrysafe.ErrUnknown)
				if !w.record(t).Inquiry.Dead || w.saw(retrysafe.EventDead) != 1 {
					t.Error("it is in no queue for operators")
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, retrysafe.Policy{Effects: c.effects, Retention: 10 * 24 * time.Hour})
				must(t, w.begins(t).Quarantine(t.Context(), errors.New("gateway timeout")))
				for range 10 {
					w.refused(t, retrysafe.ErrUnknown)
				}
				once(t, reaper(w.mem, janitor.ReaperOptions{}), 0)
				asked(t, w.reconciler(&says{verdict: c.verdict}, janitor.ReconcilerOptions{}))
				c.then(t, w)
			})
		})
	}
}

// "A. hard delete … B. soft expire": in both the key may be used anew after its
// retention, and not before.
func TestSeed002_HardDeleteAndSoftExpiry(t *testing.T) {
	t.Parallel()
	for name, tombstone := range map[string]time.Duration{"hard": 0, "soft": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, retrysafe.Policy{Retention: 48 * time.Hour})
				must(t, w.begins(t).Complete(t.Context(), answer("first")))
				r := reaper(w.mem, janitor.ReaperOptions{Tombstone: tombstone})
				runFor(t, 47*time.Hour, r)
				w.replays(t, 201, "first")
				runFor(t, 2*time.Hour, r)
				_, err := w.mem.Load(t.Context(), ref)
				if gone := errors.Is(err, retrysafe.ErrNotFound); gone != (tombstone == 0) {
					t.Errorf("Load = %v", err)
				}
				out, err := w.Do(t.Context(), call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
					return answer("second"), nil
				})
				if err != nil || out.Replayed || string(out.Body) != "second" {
					t.Errorf("Do = %+v, %v", out, err)
				}
			})
		})
	}
}
