package retrysafe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// An Attempt is one call of an [Effect].
type Attempt struct {
	// Key is the idempotency key for the other side: [Execution.DownstreamKey] of
	// the effect's name, the same on each attempt.
	Key string
	// Request is what to send: the bytes that the first attempt was given, even if this
	// attempt was given others. Under the same key they must be the same.
	Request []byte
	// N is the number of this call, from 1. If it is greater, an earlier call may have
	// arrived.
	N int

	x *Execution
}

// Provider sets the other side's own name for the effect. It is stored as
// [Record.ProviderRef] together with the result or the failure of the attempt, so that
// a resolver can ask the other side by that name.
func (a Attempt) Provider(id string) {
	if a.x == nil {
		return
	}
	a.x.mu.Lock()
	defer a.x.mu.Unlock()
	a.x.log.providerRef = clean(id)
}

// Effect runs fn, which makes one call to the outside, as one step of the operation
// that runs in ctx. Before the call its intent is stored, with the request; after it
// the result. So a crash in between leaves a record that says what may have happened,
// and a resumed attempt makes the call again under the same key, with the same bytes.
// Each effect costs two writes. In all else it is like [Phase].
//
// If the other side has decided, return that as a result, also if it is a refusal. If
// fn does not know what the other side did, return an error. An error that
// [NotExecuted] marks withdraws the intent. Any other error leaves it: return it from
// the operation, and the effect mode decides. With [EffectsKeyed] the next attempt
// calls again. With [EffectsUnprotected] the outcome is Unknown, even if the operation
// returns something else: there is no second call, unless an operator attests that
// there was none by releasing the record. With [EffectsInTx] an effect is refused.
//
// Without an execution in ctx, Effect just calls fn, with a random key.
func Effect[T any](ctx context.Context, name string, request []byte, fn func(context.Context, Attempt) (T, error)) (T, error) {
	var out T
	s := Step{Name: name, Effect: true, Open: true, Request: request}
	x, err := executionOf(ctx, &s)
	if err != nil {
		return out, err
	}
	if x == nil {
		return fn(ctx, Attempt{Key: DownstreamKey(rand.Text(), Ref{}, name), Request: request, N: 1})
	}
	return stepResult(&s, &out, x.runEffect(ctx, &s, func(a Attempt) error {
		v, err := fn(ctx, a)
		if err != nil {
			return err
		}
		return s.returns(v, &out)
	}))
}

// runEffect makes the call unless its result is stored.
func (x *Execution) runEffect(ctx context.Context, s *Step, call func(Attempt) error) error {
	stored, err := x.beginStep(ctx, s)
	if err != nil {
		return err
	}
	if stored != nil && !stored.Open {
		s.Result = stored.Result
		return errAlreadyDone
	}
	defer x.endStep()
	if stored != nil {
		s.Calls, s.Request = stored.Calls, stored.Request
	}
	s.Calls++
	if err := x.storeIntent(ctx, s); err != nil {
		return err
	}
	failpoint.Hit("effect.intended")
	err = call(Attempt{Key: x.DownstreamKey(s.Name), Request: s.Request, N: s.Calls, x: x})
	switch {
	case err == nil:
		failpoint.Hit("effect.called")
		s.Open, s.Request = false, nil
		x.mu.Lock()
		s.ProviderRef = x.log.providerRef
		x.mu.Unlock()
		return x.storeResult(ctx, s)
	case IsNotExecuted(err):
		return errors.Join(err, x.withdrawIntent(ctx, s))
	default:
		return err
	}
}

// storeIntent stores that the effect is about to be called. It clears the record's
// ProviderRef, which named an earlier effect.
func (x *Execution) storeIntent(ctx context.Context, s *Step) error {
	x.mu.Lock()
	w := x.log
	next, err := w.checkpointWith(s)
	if err == nil && s.Calls == 1 {
		w.providerRef = ""
	}
	x.mu.Unlock()
	if err != nil {
		return err
	}
	if err := x.saveCheckpoint(ctx, next); err != nil {
		return fmt.Errorf("%s was not called, because its intent is not stored: %w", s, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w.steps, w.called, w.uncertain = append(w.steps[:w.passed], *s), true, true
	return nil
}

// withdrawIntent records that the call was not made. If it was the first call of the
// effect, the intent is deleted. Otherwise it stays: an earlier call may have been
// made, with these bytes.
func (x *Execution) withdrawIntent(ctx context.Context, s *Step) error {
	x.mu.Lock()
	w := x.log
	w.uncertain = false
	next := Checkpoint{Phase: w.lastFinished(), Data: w.done}
	x.mu.Unlock()
	if s.Calls > 1 {
		return nil
	}
	if err := x.saveCheckpoint(ctx, next); err != nil {
		return fmt.Errorf("the intent of %s is not withdrawn: %w", s, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w.steps, w.called = w.steps[:w.passed], false
	return nil
}
