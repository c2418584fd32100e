package sim

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// The operation is what a user's code would be: it charges a customer, once. It is
// honest: what it says of itself is true.

var (
	errBefore = errors.New("sim: the operation fails before it has done anything")
	errPanic  = errors.New("sim: the operation panics")
)

// enters checks that an operation runs only under a reservation of its own (S8).
func (w *world) enters(x *retrysafe.Execution) *slot {
	r := x.Record()
	s := w.slot(r.Ref)
	w.happens(attemptBegun)
	switch a := s.of(r.Owner); {
	case a == nil:
		w.violate("S8", s, "an operation runs whose reservation was never stored")
	case a.begun:
		w.violate("S8", s, "one reservation runs its operation twice")
	case a.taken:
		w.violate("S8", s, "an operation runs whose reservation was given to another attempt")
	default:
		a.begun = true
		if w.traces {
			w.tracef("runs attempt %d of %s, owner %x, generation %d", r.Attempt, s.name, r.Owner[12:], a.gen)
		}
	}
	return s
}

// operate runs the operation as its way has it.
func (w *world) operate(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
	s := w.enters(x)
	r := x.Record()
	if err := w.works(ctx); err != nil {
		return retrysafe.Result{}, err
	}
	var err error
	switch w.way {
	case byEffect:
		err = w.walks(ctx, s, r.Owner)
	case byCompleteTx, byPhaseTx:
		return w.completes(ctx, s, x)
	case byMessage:
		return retrysafe.Result{}, w.hands(ctx, s, x)
	case byWorker:
		if w.policy.Effects == retrysafe.EffectsInTx {
			return w.completes(ctx, s, x)
		}
		err = w.charge(s, r.Owner, x.DownstreamKey("charge"))
	default:
		err = w.charge(s, r.Owner, x.DownstreamKey("charge"))
	}
	if err != nil {
		if w.plant == dishonest {
			return retrysafe.Result{}, retrysafe.NotExecuted(err)
		}
		return retrysafe.Result{}, w.doubts(ctx, x, err)
	}
	w.lingers()
	return w.result(s, r.Fingerprint.Sum[0]), nil
}

// works is what happens before the effect.
func (w *world) works(ctx context.Context) error {
	w.perils()
	if held := w.holding; held > 0 && w.at.node == &w.nodes[0] {
		w.holding = 0
		w.pause(held)
	}
	if w.calm {
		return nil
	}
	w.pause(time.Duration(w.draw(500)) * time.Millisecond)
	if w.hit(w.rates.hangs) {
		w.happens(attemptHung)
		d := time.Duration(w.draw(3*int(w.policy.Lease/time.Millisecond))) * time.Millisecond
		w.tracef("hangs for %v", d)
		w.pause(d)
		if ctx.Err() != nil && w.draw(2) == 0 {
			return retrysafe.NotExecuted(ctx.Err()) // it looks whether it is still wanted, or does not
		}
	}
	if w.hit(w.rates.fails) {
		w.happens(attemptFailed)
		if w.draw(2) == 0 {
			return retrysafe.NotExecuted(errBefore)
		}
		return errBefore
	}
	if w.hit(w.rates.panics) {
		w.happens(attemptPanicked)
		panic(errPanic) //nolint:forbidigo // operations do
	}
	return nil
}

// lingers is what happens after the effect.
func (w *world) lingers() {
	w.perils()
	if w.calm {
		return
	}
	if w.hit(w.rates.hangs) {
		w.happens(attemptHung)
		w.pause(time.Duration(w.draw(3*int(w.policy.Lease/time.Millisecond))) * time.Millisecond)
	}
	if w.hit(w.rates.panics) {
		w.happens(attemptPanicked)
		panic(errPanic) //nolint:forbidigo // operations do
	}
}

// doubts returns the error of an effect that may have happened. Where an error counts
// as a promise that nothing has, it says so first.
func (w *world) doubts(ctx context.Context, x *retrysafe.Execution, err error) error {
	if w.policy.OnFailure == retrysafe.FailureRetry && !retrysafe.IsNotExecuted(err) && w.policy.Effects == retrysafe.EffectsUnprotected {
		return errors.Join(err, x.Quarantine(ctx, err))
	}
	return err
}

// settle runs an execution and ends it, as a middleware does.
func (w *world) settle(x *retrysafe.Execution) (out retrysafe.Outcome, err error) {
	defer x.Stop()
	ctx := x.Context()
	back := false
	defer func() {
		if !back && !w.at.doomed {
			_ = x.Fail(outside, errPanic)
		}
	}()
	result, err := w.operate(ctx, x)
	back = true
	if out, asked := x.Outcome(outside); asked == nil {
		return out, nil
	}
	switch {
	case err == nil && x.Fenced():
		err = x.Fail(outside, errDoubt)
	case err == nil:
		err = x.Complete(outside, result)
	case retrysafe.IsNotExecuted(err):
		return out, errors.Join(err, x.Fail(outside, err))
	case w.policy.OnFailure == retrysafe.FailureStore && w.policy.Effects != retrysafe.EffectsInTx:
		failure := w.result(w.slot(x.Ref()), x.Record().Fingerprint.Sum[0])
		failure.Status = 500
		err = x.Complete(outside, failure)
	default:
		return out, errors.Join(err, x.Fail(outside, err))
	}
	if err != nil {
		return out, err
	}
	return x.Outcome(outside)
}

// walks charges in steps that can be resumed.
func (w *world) walks(ctx context.Context, s *slot, owner retrysafe.Owner) error {
	if _, err := retrysafe.Phase(ctx, "look", func(context.Context) (int, error) {
		w.perils()
		return 1, nil
	}); err != nil {
		return err
	}
	_, err := retrysafe.Effect(ctx, "charge", []byte("charge"), func(_ context.Context, a retrysafe.Attempt) (int, error) {
		if string(a.Request) != "charge" {
			w.violate("S11", s, "an effect is called with %q", a.Request)
		}
		return 1, w.charge(s, owner, a.Key)
	})
	return err
}

// completes writes its effect and the answer in one transaction.
func (w *world) completes(ctx context.Context, s *slot, x *retrysafe.Execution) (result retrysafe.Result, err error) {
	phased := w.way == byPhaseTx
	if phased {
		if _, err := retrysafe.PhaseTx(ctx, &w.store, "write", func(_ context.Context, t *tx) (int, error) {
			t.effect = true
			return 1, w.works(ctx)
		}); err != nil {
			return result, err
		}
	}
	result = w.result(s, x.Record().Fingerprint.Sum[0])
	shared, t, err := w.store.BeginTx(ctx)
	if err != nil {
		return result, err
	}
	defer t.abandon()
	t.effect = !phased
	if err := x.CompleteTx(ctx, shared, result); err != nil {
		_ = t.Commit(ctx) // a caller that ignores the error cannot do harm
		return result, err
	}
	w.perils()
	_ = t.Commit(ctx) // Do finds out how it ended
	return result, nil
}

// hands hands the key to a message.
func (w *world) hands(ctx context.Context, s *slot, x *retrysafe.Execution) error {
	shared, t, err := w.store.BeginTx(ctx)
	if err != nil {
		return err
	}
	defer t.abandon()
	t.effect = w.policy.Effects == retrysafe.EffectsInTx
	r, err := x.HandOver(ctx, shared, w.term)
	if err != nil {
		return err
	}
	m := outbox.Message{
		Topic: "charge", Key: x.DownstreamKey("charge"), Settles: &r,
		Payload: []byte{s.index(w), r.Fingerprint.Sum[0]},
	}
	if err := t.Enqueue(ctx, m); err != nil {
		return err
	}
	return t.Commit(ctx)
}

// inTx is the operation in one transaction with its answer.
func (w *world) inTx(ctx context.Context, c *client, t *tx) (retrysafe.Result, error) {
	w.happens(attemptBegun)
	if w.holder(c.slot.ref) != t && !t.ended { // what a crash of the server has ended holds nothing, and commits nothing
		w.violate("S8", c.slot, "an operation runs in a transaction that does not hold its key")
	}
	if err := w.works(ctx); err != nil {
		return retrysafe.Result{}, err
	}
	t.effect = true
	w.lingers()
	return w.result(c.slot, c.print), nil
}
