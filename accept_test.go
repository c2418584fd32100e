package retrysafe_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// accepts stores the call for a worker, and must be told so.
func (b *bundle) accepts(t *testing.T) retrysafe.Record {
	t.Helper()
	out, err := b.Accept(t.Context(), call(), []byte("POST /payments"))
	var refused *retrysafe.RefusedError
	if out != nil || !errors.Is(err, retrysafe.ErrAccepted) || !errors.As(err, &refused) || refused.RetryAfter <= 0 {
		t.Fatalf("Accept = %+v, %v; want it accepted", out, err)
	}
	return b.state(t)
}

func TestAcceptedWorkIsTakenUpOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		r := b.accepts(t)
		if r.State != retrysafe.StateAccepted || r.Attempt != 0 || string(r.Request) != "POST /payments" || r.Deadline.Sub(r.ReadAt) != time.Hour {
			t.Errorf("stored %+v", r)
		}
		if again := b.accepts(t); again.Revision != r.Revision || b.saw(retrysafe.EventAccepted) != 1 {
			t.Error("a retry stored it again")
		}
		other := call()
		other.Fingerprint = print(2)
		if _, err := b.Accept(t.Context(), other, nil); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another request: %v", err)
		}
		var workers sync.WaitGroup
		var runs atomic.Int32
		for range 8 {
			workers.Go(func() {
				x, err := b.TakeUp(t.Context(), r)
				if err != nil {
					if !errors.Is(err, retrysafe.ErrLost) {
						t.Error(err)
					}
					return
				}
				runs.Add(1)
				if x.Attempt() != 1 || string(x.Record().Request) != "POST /payments" {
					t.Errorf("attempt %d of %q", x.Attempt(), x.Record().Request)
				}
				time.Sleep(time.Second)
				b.refused(t, retrysafe.ErrInFlight)
				if err := x.Complete(t.Context(), answer("paid")); err != nil {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		b.replays(t, "paid")
		if out, err := b.Accept(t.Context(), call(), nil); err != nil || !out.Replayed || string(out.Body) != "paid" {
			t.Errorf("Accept = %+v, %v; want the answer", out, err)
		}
		if _, err := b.TakeUp(t.Context(), b.state(t)); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("TakeUp of what is done = %v", err)
		}
	})
}

// The worker of accepted work dies. Where another run is harmless the work waits
// for the next worker; otherwise its outcome is unknown.
func TestAcceptedWorkOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]retrysafe.State{retrysafe.EffectsKeyed: retrysafe.StateAccepted, retrysafe.EffectsUnprotected: retrysafe.StateUnknown} {
		synctest.Test(t, func(t *testing.T) {
			p := retrysafe.Policy{Effects: effects}
			if effects == retrysafe.EffectsKeyed {
				p.Lapse = retrysafe.LapseResume
			}
			b := setup(t, p)
			x, err := b.TakeUp(t.Context(), b.accepts(t))
			must(t, err)
			must(t, x.Save(t.Context(), retrysafe.Checkpoint{Phase: "charged"}))
			b.crash(t)
			if n := b.sweep(t); n != 1 || b.state(t).State != want {
				t.Fatalf("%v: swept %d, it is %v", effects, n, b.state(t).State)
			}
			if want == retrysafe.StateUnknown {
				must(t, x.Quarantine(t.Context(), nil)) // stop its heartbeat
				return
			}
			next, err := b.TakeUp(t.Context(), b.accepts(t))
			must(t, err)
			if next.Attempt() != 2 || next.Checkpoint().Phase != "charged" {
				t.Errorf("attempt %d from %+v", next.Attempt(), next.Checkpoint())
			}
			if err := x.Complete(t.Context(), answer("late")); !errors.Is(err, retrysafe.ErrLost) {
				t.Errorf("the late worker's answer: %v", err)
			}
			must(t, next.Complete(t.Context(), answer("paid")))
		})
	}
}

// What the store did not confirm was not accepted, and is not lost if it was.
func TestAcceptWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		lost := 0
		b.fault.Plan(func(faultstore.Step) faultstore.Fault {
			if lost++; lost == 1 {
				return faultstore.LoseReply
			}
			return faultstore.None
		})
		r := b.accepts(t) // it recognises itself
		b.fault.Plan(func(faultstore.Step) faultstore.Fault { return faultstore.LoseReply })
		if _, err := b.TakeUp(t.Context(), r); err == nil || errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("TakeUp = %v, though the store has not said whose it is", err)
		}
		b.fault.Plan(nil)
		if s := b.state(t).State; s != retrysafe.StateInProgress {
			t.Fatalf("it is %v", s)
		}
		// This process knows that the attempt never started, so a retry need not wait for its
		// lease.
		x := b.begins(t)
		if x.Attempt() != 2 {
			t.Errorf("attempt %d", x.Attempt())
		}
		must(t, x.Complete(t.Context(), answer("paid")))
		b.replays(t, "paid")
	})
}

// Work that is gone is not the worker's any more: it goes on.
func TestTakeUpOfWorkThatIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	r := b.accepts(t)
	r.Key = "purged"
	if _, err := b.TakeUp(t.Context(), r); !errors.Is(err, retrysafe.ErrLost) {
		t.Errorf("TakeUp = %v", err)
	}
}

// An attempt without an owner of its own could not be told from another one: without
// randomness nothing runs.
func TestWithoutRandomnessNothingRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	e, err := retrysafe.New(b.mem, &retrysafe.Options{Rand: strings.NewReader("")})
	must(t, err)
	if x, err := e.TakeUp(t.Context(), b.accepts(t)); x != nil || err == nil || b.state(t).State != retrysafe.StateAccepted {
		t.Errorf("TakeUp = %v, %v", x, err)
	}
	once, err := retrysafe.New(b.mem, &retrysafe.Options{Rand: strings.NewReader("of one attempt!!")}) // enough to reserve a key, not to claim one
	must(t, err)
	released := call()
	released.Key = "released"
	x, _, err := b.Begin(t.Context(), released)
	must(t, err)
	must(t, x.Release(t.Context(), nil))
	if x, _, err := once.Begin(t.Context(), released); x != nil || !errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("Begin = %v, %v", x, err)
	}
	fresh := call()
	fresh.Key = "fresh"
	if x, _, err := e.Begin(t.Context(), fresh); x != nil || !errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("Begin = %v, %v", x, err)
	}
	if _, err := b.mem.Load(t.Context(), fresh.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("something is reserved: %v", err)
	}
}

// An accepted key that expired, or was proven not to have happened, is accepted
// again.
func TestAcceptAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Retention: time.Hour})
		x, err := b.TakeUp(t.Context(), b.accepts(t))
		must(t, err)
		must(t, x.Release(t.Context(), errors.New("not sent")))
		if s := b.state(t); s.State != retrysafe.StateAccepted || x.State() != retrysafe.StateAccepted { // its client was told that it is under way
			t.Errorf("it is %v", s.State)
		}
		r := b.accepts(t)
		if r.Attempt != 1 || string(r.Request) != "POST /payments" {
			t.Errorf("stored %+v", r)
		}
		x, err = b.TakeUp(t.Context(), r)
		must(t, err)
		if x.Attempt() != 2 {
			t.Errorf("attempt %d", x.Attempt())
		}
		must(t, x.Complete(t.Context(), answer("paid")))
		time.Sleep(2 * time.Hour)
		if r := b.accepts(t); r.Attempt != 0 || r.Result != nil {
			t.Errorf("after its retention: %+v", r)
		}
	})
}

func TestSystemScopes(t *testing.T) {
	t.Parallel()
	if own := (retrysafe.Ref{Scope: retrysafe.SystemScope("operator"), Key: "k"}); !own.IsSystem() || ref.IsSystem() {
		t.Error("a scope of ours is taken for a tenant's, or the other way round")
	}
}

// A sweeper made the work of a worker that was silent for too long wait for the next
// worker. The record still has the silent worker's owner and attempt; its answer is refused
// all the same, and it must not be told that the answer is stored.
func TestAnswerForWorkThatWaitsForAWorkerAgainIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun})
		x, err := b.TakeUp(t.Context(), b.accepts(t))
		must(t, err)
		b.crash(t)
		if n := b.sweep(t); n != 1 || b.state(t).State != retrysafe.StateAccepted {
			t.Fatalf("swept %d, it is %v", n, b.state(t).State)
		}
		if err := x.Complete(t.Context(), answer("late")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the late worker's Complete = %v, and the record is %v", err, b.state(t).State)
		}
		next, err := b.TakeUp(t.Context(), b.accepts(t))
		must(t, err)
		must(t, next.Complete(t.Context(), answer("paid")))
		b.replays(t, "paid")
	})
}

// Accept stores nothing for a call that cannot be stored, and a worker gets nothing while the
// store does not say how its operation is to be judged.
func TestAcceptAndTakeUpCheckFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun})
		scopeless := call()
		scopeless.Scope = ""
		if _, err := b.Accept(t.Context(), scopeless, nil); !errors.Is(err, retrysafe.ErrInvalidCall) {
			t.Errorf("Accept without a scope = %v", err)
		}
		r := b.accepts(t)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Load {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		if x, err := b.TakeUp(t.Context(), r); x != nil || !errors.Is(err, faultstore.ErrInjected) || b.state(t).State != retrysafe.StateAccepted {
			t.Errorf("TakeUp = %v, %v; it is %s", x, err, b.state(t).State)
		}
	})
}

// A worker's claim is durable before it runs, also with AsyncReserve: no client is there to
// send the work again.
func TestTakeUpIsNeverRelaxed(t *testing.T) {
	t.Parallel()
	p := keyed
	p.AsyncReserve = true
	b := setup(t, p)
	r := b.accepts(t)
	claims := 0
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap && s.Write.State == retrysafe.StateInProgress {
			if claims++; s.Write.Relaxed {
				t.Error("the claim is relaxed")
			}
		}
		return faultstore.None
	})
	x, err := b.TakeUp(t.Context(), r)
	must(t, err)
	must(t, x.Complete(t.Context(), answer("paid")))
	if claims == 0 {
		t.Error("no claim was seen")
	}
}

// The answer of accepted work is kept for as long as its call has asked for, whatever the
// policy of the worker says.
func TestAcceptedWorkKeepsTheRetentionOfItsCall(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Retention: time.Hour})
	c := call()
	c.Retention = 48 * time.Hour
	if _, err := b.Accept(t.Context(), c, []byte("POST /payments")); !errors.Is(err, retrysafe.ErrAccepted) {
		t.Fatal(err)
	}
	x, err := b.TakeUp(t.Context(), b.state(t))
	must(t, err)
	must(t, x.Complete(t.Context(), answer("paid")))
	if got := b.state(t); got.Retain != c.Retention || got.Deadline.Sub(got.ReadAt) < 47*time.Hour {
		t.Errorf("kept for %v, until %v from now; want %v", got.Retain, got.Deadline.Sub(got.ReadAt), c.Retention)
	}
}

// A worker gets the bytes that were accepted first, whatever a retry brings. An empty request
// is one, too: work without a body waits for the next worker again.
func TestAcceptedWorkKeepsTheRequestOfItsFirstCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed})
		first, err := b.TakeUp(t.Context(), b.accepts(t))
		must(t, err)
		b.crash(t)
		if _, err := b.Accept(t.Context(), call(), []byte("other bytes")); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Fatal(err)
		}
		if r := b.state(t); r.State != retrysafe.StateAccepted || string(r.Request) != "POST /payments" {
			t.Errorf("it is %s with %q", r.State, r.Request)
		}
		_ = first.Release(t.Context(), nil) // stop its heartbeat
		bare := call()
		bare.Key = "bare"
		if _, err := b.Accept(t.Context(), bare, nil); !errors.Is(err, retrysafe.ErrAccepted) {
			t.Fatal(err)
		}
		r, err := b.mem.Load(t.Context(), bare.Ref)
		must(t, err)
		x, err := b.TakeUp(t.Context(), r)
		must(t, err)
		if must(t, x.Release(t.Context(), errors.New("not sent"))); x.State() != retrysafe.StateAccepted {
			t.Errorf("work without a body is %s after its worker has released it", x.State())
		}
	})
}

// A worker leaves alone what it cannot read, and what another transaction holds.
func TestTakeUpLeavesAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	r := b.accepts(t)
	newer := r
	newer.Version = retrysafe.RecordVersion + 1
	if x, err := b.TakeUp(t.Context(), newer); x != nil || !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("TakeUp of a newer version = %v, %v", x, err)
	}
	held, err := retrysafe.New(busySwap{b.mem}, nil)
	must(t, err)
	if x, err := held.TakeUp(t.Context(), r); x != nil || !errors.Is(err, retrysafe.ErrLost) {
		t.Errorf("TakeUp of a key that a transaction holds = %v, %v", x, err)
	}
	if s := b.state(t).State; s != retrysafe.StateAccepted {
		t.Errorf("it is %s", s)
	}
}

// busySwap is a store in which a transaction holds every key.
type busySwap struct{ retrysafe.Store }

func (busySwap) Swap(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, retrysafe.ErrBusy
}

// A worker that releases its work gives it back for as long as work may wait, and is not told
// that it has lost it when the reply of the store is lost.
func TestReleasedWorkWaitsForAWorkerAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Patience: 20 * time.Minute})
		x, err := b.TakeUp(t.Context(), b.accepts(t))
		must(t, err)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		must(t, x.Release(t.Context(), errors.New("not sent")))
		if r := b.state(t); r.State != retrysafe.StateAccepted || r.Deadline.Sub(r.UpdatedAt) != 20*time.Minute || b.saw(retrysafe.EventLost) != 0 {
			t.Errorf("it is %s for %v; observer saw %v", r.State, r.Deadline.Sub(r.UpdatedAt), b.events)
		}
	})
}
