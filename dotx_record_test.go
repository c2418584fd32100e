package retrysafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestDoTxMeetsARecord(t *testing.T) {
	t.Parallel()
	lapsed := func(l retrysafe.Lapse) func(*retrysafe.Write) {
		return func(w *retrysafe.Write) { w.Lapse, w.Term = l, 0 }
	}
	in := func(s retrysafe.State, term time.Duration) func(*retrysafe.Write) {
		return func(w *retrysafe.Write) {
			w.State, w.Term = s, term
			if s == retrysafe.StateCompleted {
				old := answer("old")
				w.Result = &old
			}
		}
	}
	for name, c := range map[string]struct {
		change  func(*retrysafe.Write)
		policy  retrysafe.Policy
		refused error
		status  int // of a replay, 0: it runs
		attempt int
	}{
		"completed":            {change: in(retrysafe.StateCompleted, time.Hour), status: 201, attempt: 1},
		"retryable":            {change: in(retrysafe.StateRetryable, time.Hour), attempt: 2},
		"retryable and due":    {change: in(retrysafe.StateRetryable, 0), attempt: 1},
		"completed and due":    {change: in(retrysafe.StateCompleted, 0), attempt: 1},
		"expired":              {change: in(retrysafe.StateExpired, time.Hour), attempt: 1},
		"expired, gone":        {change: in(retrysafe.StateExpired, time.Hour), policy: retrysafe.Policy{OnExpired: retrysafe.ExpiredGone}, refused: retrysafe.ErrGone},
		"in flight":            {change: in(retrysafe.StateInProgress, time.Hour), refused: retrysafe.ErrInFlight},
		"unknown":              {change: in(retrysafe.StateUnknown, time.Hour), refused: retrysafe.ErrUnknown},
		"accepted":             {change: in(retrysafe.StateAccepted, time.Hour), refused: retrysafe.ErrAccepted},
		"accepted, tried once": {change: in(retrysafe.StateAccepted, 0), refused: retrysafe.ErrUnknown},
		"lapsed, rerun":        {change: lapsed(retrysafe.LapseRerun), attempt: 2},
		"lapsed, resume":       {change: lapsed(retrysafe.LapseResume), attempt: 2},
		"lapsed, quarantine":   {change: lapsed(retrysafe.LapseQuarantine), refused: retrysafe.ErrUnknown},
		"lapsed, fail":         {change: lapsed(retrysafe.LapseFail), status: 500, attempt: 1},
		"of a newer version":   {change: func(w *retrysafe.Write) { w.Version++ }, refused: retrysafe.ErrUnreadable},
	} {
		c.policy.Effects = retrysafe.EffectsInTx
		b := newBank(t, c.policy)
		was := b.with(t, c.change)
		out, err := b.do(t.Context(), call())
		switch {
		case c.refused != nil:
			var refused *retrysafe.RefusedError
			if !errors.Is(err, c.refused) || !errors.As(err, &refused) {
				t.Errorf("%s: DoTx = %+v, %v; want refused: %v", name, out, err, c.refused)
			}
			b.booked(t, 0, 0)
		case c.status != 0:
			if err != nil || out.Status != c.status || !out.Replayed || out.Attempt != c.attempt {
				t.Errorf("%s: DoTx = %+v, %v; want a replay of %d", name, out, err, c.status)
			}
			b.booked(t, 0, 0)
		default:
			r := b.state(t)
			if err != nil || out.Replayed || out.Attempt != c.attempt || string(out.Body) != "booked" {
				t.Errorf("%s: DoTx = %+v, %v; want attempt %d", name, out, err, c.attempt)
			}
			if r.State != retrysafe.StateCompleted || r.Owner == was.Owner || r.Revision <= was.Revision || r.Attempt != c.attempt || !r.Deadline.Equal(out.Expires) {
				t.Errorf("%s: the record is %+v", name, r)
			}
			if kind := map[int]retrysafe.EventKind{1: retrysafe.EventReserved, 2: retrysafe.EventRetried}[c.attempt]; b.saw(kind) != 1 {
				t.Errorf("%s: observer saw %v", name, b.events)
			}
			b.booked(t, 1, 1)
			b.replays(t, "booked")
		}
		if settled := b.state(t); settled.Owner == was.Owner && settled.Revision != was.Revision && b.saw(retrysafe.EventLapsed) != 1 {
			t.Errorf("%s: it became %s, and observer saw %v", name, settled.State, b.events)
		}
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		if _, err := tx.Reserve(t.Context(), ref); err != nil {
			t.Errorf("%s: the key is held afterwards: %v", name, err)
		}
		must(t, tx.Rollback(t.Context()))
	}
}

// A reservation need not be durable at once, where the policy says so. An answer has to be.
func TestDoTxStoresADurableAnswer(t *testing.T) {
	t.Parallel()
	b := newBank(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, AsyncReserve: true})
	b.store = func(w retrysafe.Write) error {
		if w.Relaxed {
			t.Error("the answer is stored as if it need not be durable")
		}
		return nil
	}
	_, err := b.do(t.Context(), call())
	must(t, err)
	b.booked(t, 1, 1)
}

func TestDoTxFailureLeavesARecordAsItWas(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	was := b.with(t, func(w *retrysafe.Write) { w.State = retrysafe.StateRetryable })
	b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
		return retrysafe.Result{}, errors.New("no funds")
	}
	if _, err := b.do(t.Context(), call()); err == nil {
		t.Error("the error is lost")
	}
	if got := b.state(t); got.Revision != was.Revision {
		t.Errorf("the record is %+v", got)
	}
	b.booked(t, 1, 0)
}

func TestDoTxLapseThatTheStoreDoesNotTakeIsUnavailable(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.with(t, func(w *retrysafe.Write) { w.Term = 0 })
	b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("DoTx = %v", err)
	}
	b.fault.Plan(nil)
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnknown) {
		t.Errorf("DoTx = %v", err)
	}
	b.booked(t, 0, 0)
}

// A record that moves under the call's hands all the time is in flight.
func TestDoTxGivesUpOnARecordThatMoves(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.with(t, func(w *retrysafe.Write) { w.Term = 0 })
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap {
			r := b.state(t).Update()
			r.Term = 0
			_, err := b.mem.Swap(t.Context(), r)
			must(t, err)
		}
		return faultstore.None
	})
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
		t.Errorf("DoTx = %v", err)
	}
	b.booked(t, 0, 0)
}

func TestDoTxUnreadableIsRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.reserve = func(context.Context) error { return retrysafe.ErrUnreadable }
	var refused *retrysafe.RefusedError
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnreadable) || !errors.As(err, &refused) || errors.Is(err, retrysafe.ErrUnavailable) {
		t.Errorf("DoTx = %v", err)
	}
	b.reserve = nil
	b.store = func(retrysafe.Write) error { return retrysafe.ErrUnreadable }
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrUnreadable) || !errors.As(err, &refused) || b.saw(retrysafe.EventReleased) != 1 || b.saw(retrysafe.EventUnreadable) != 2 {
		t.Errorf("DoTx = %v; observer saw %v", err, b.events)
	}
	b.booked(t, 1, 0)
	b.free(t)
}

// The process that lost the reply to a reservation takes it up at once.
func TestDoTxTakesUpItsOwnOrphan(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Create {
			return faultstore.LoseReply
		}
		return faultstore.None
	})
	b.refused(t, retrysafe.ErrUnavailable)
	b.fault.Plan(nil)
	looks, err := b.mem.Begin(t.Context())
	must(t, err)
	_, err = looks.Reserve(t.Context(), ref)
	must(t, err)
	if _, err := b.do(t.Context(), call()); !errors.Is(err, retrysafe.ErrInFlight) {
		t.Errorf("DoTx beside another transaction = %v", err)
	}
	must(t, looks.Rollback(t.Context()))
	w := b.state(t).Update() // a sweeper has found it, which does not know that it never started
	w.State, w.Reason, w.Term = retrysafe.StateUnknown, "lease lapsed", time.Minute
	_, err = b.mem.Swap(t.Context(), w)
	must(t, err)
	for _, fail := range []bool{true, false} { // it is not lost when taking it fails
		b.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) {
			if fail {
				return retrysafe.Result{}, errors.New("no funds")
			}
			return answer("booked"), nil
		}
		out, err := b.do(t.Context(), call())
		if fail != (err != nil) || !fail && out.Attempt != 2 {
			t.Errorf("DoTx = %+v, %v", out, err)
		}
	}
	b.booked(t, 2, 1)
	b.replays(t, "booked")
}

// A call that waits for a record in flight gets what DoTx has made of it in the same process,
// without a load.
func TestDoTxNotifiesCallsThatWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fn   func(context.Context, *memstore.Tx) (retrysafe.Result, error)
		want error
	}{
		"commits": {},
		"ends its transaction itself": {func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
			return answer("booked"), tx.Commit(ctx)
		}, retrysafe.ErrUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, inTx)
			failing := func(op faultstore.Op, f faultstore.Fault) {
				b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
					if s.Op == op {
						return f
					}
					return faultstore.None
				})
			}
			failing(faultstore.Create, faultstore.LoseReply)
			b.refused(t, retrysafe.ErrUnavailable) // the reservation is stored, and this process may take it up
			failing("", faultstore.None)
			done := make(chan struct{})
			go func() {
				defer close(done)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if out, err := b.Attach(ctx, ref); !errors.Is(err, c.want) || err == nil && string(out.Body) != "booked" {
					t.Errorf("DoTx %s: Attach = %+v, %v; want %v", name, out, err, c.want)
				}
			}()
			time.Sleep(time.Second)
			failing(faultstore.Load, faultstore.LoseRequest)
			b.fn = c.fn
			if _, err := b.do(t.Context(), call()); (err == nil) != (c.want == nil) {
				t.Errorf("DoTx that %s = %v", name, err)
			}
			<-done
		})
	}
}
