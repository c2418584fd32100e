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
	// Request is what to send: the bytes that the first attempt was given, whatever
	// this one was. Under the same key they must be the same.
	Request []byte
	// N is the number of this call, from 1. An earlier one may have arrived.
	N int

	x *Execution
}

// Provider notes the other side's own name for the effect. It is stored as
// [Record.ProviderRef] together with the result, or with whatever else becomes of
// the attempt, so that the other side can be asked about it by that name.
func (a Attempt) Provider(id string) {
	if a.x == nil {
		return
	}
	a.x.mu.Lock()
	defer a.x.mu.Unlock()
	a.x.walk.ref = clean(id)
}

// Effect runs fn, which makes one call to the outside, as one step of the operation
// that runs in ctx. Before the call its intent is stored, with the request; after it
// the result. So a crash in between leaves a record that says what may have
// happened, and a resumed attempt makes the call again under the same key, with the
// same bytes. It is two writes for each effect, and in all else it is as [Phase].
//
// What fn cannot tell is an error; what the other side has decided is a result, a
// refusal too. An error that [NotExecuted] marks takes the intent back. Any other
// leaves it: return it from the operation, and what is proven becomes of the
// attempt. With [Keyed] effects the next attempt calls again. With [Unprotected]
// ones the outcome is Unknown, whatever else the operation says of itself: there is
// no second call, unless somebody vouches that there was none, as an operator does
// who releases the record. With [InTx] an effect is refused.
//
// Without an execution in ctx fn is just called, with a key that is drawn for it.
func Effect[T any](ctx context.Context, name string, request []byte, fn func(context.Context, Attempt) (T, error)) (T, error) {
	var out T
	s := Step{Name: name, Effect: true, Open: true, Request: request}
	x, err := walker(ctx, &s)
	if err != nil {
		return out, err
	}
	if x == nil {
		return fn(ctx, Attempt{Key: DownstreamKey(rand.Text(), Ref{}, name), Request: request, N: 1})
	}
	return passed(&s, &out, x.takeEffect(ctx, &s, func(a Attempt) error {
		v, err := fn(ctx, a)
		if err != nil {
			return err
		}
		return s.returns(v, &out)
	}))
}

// takeEffect makes the call unless it is finished.
func (x *Execution) takeEffect(ctx context.Context, s *Step, call func(Attempt) error) error {
	stored, err := x.arrive(ctx, s)
	if err != nil {
		return err
	}
	if stored != nil && !stored.Open {
		s.Result = stored.Result
		return errPassed
	}
	defer x.depart()
	if stored != nil {
		s.Calls, s.Request = stored.Calls, stored.Request
	}
	s.Calls++
	if err := x.intend(ctx, s); err != nil {
		return err
	}
	failpoint.Hit("effect.intended")
	err = call(Attempt{Key: x.DownstreamKey(s.Name), Request: s.Request, N: s.Calls, x: x})
	switch {
	case err == nil:
		failpoint.Hit("effect.called")
		s.Open, s.Request = false, nil
		x.mu.Lock()
		s.ProviderRef = x.walk.ref
		x.mu.Unlock()
		return x.finish(ctx, s)
	case IsNotExecuted(err):
		return errors.Join(err, x.retract(ctx, s))
	default:
		return err
	}
}

// intend stores that the effect is about to be called. The record's name at the
// provider was an earlier effect's, and is no longer what to ask for.
func (x *Execution) intend(ctx context.Context, s *Step) error {
	x.mu.Lock()
	w := x.walk
	next, err := w.with(s)
	if err == nil && s.Calls == 1 {
		w.ref = ""
	}
	x.mu.Unlock()
	if err != nil {
		return err
	}
	if err := x.keep(ctx, next); err != nil {
		return fmt.Errorf("%s was not called, because its intent is not stored: %w", s, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w.steps, w.called, w.doubt = append(w.steps[:w.at], *s), true, true
	return nil
}

// retract notes that the call was not made. If it was the first, the intent is taken
// back; otherwise an earlier one may have been made, with these bytes.
func (x *Execution) retract(ctx context.Context, s *Step) error {
	x.mu.Lock()
	w := x.walk
	w.doubt = false
	next := Checkpoint{Phase: w.last(), Data: w.done}
	x.mu.Unlock()
	if s.Calls > 1 {
		return nil
	}
	if err := x.keep(ctx, next); err != nil {
		return fmt.Errorf("the intent of %s is not taken back: %w", s, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w.steps, w.called = w.steps[:w.at], false
	return nil
}
