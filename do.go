package retrysafe

import (
	"context"
	"errors"
	"fmt"
)

// Do runs fn once for the call's key and returns its answer, now and on every
// retry. When fn returns an error the attempt is settled by [Execution.Fail] and
// Do returns that error; when fn panics likewise, and the panic goes on. An fn
// that settles its execution itself has the last word.
//
// Fn runs in [Execution.Context], on the caller's goroutine.
func (e *Engine) Do(ctx context.Context, c Call, fn func(context.Context, *Execution) (Result, error)) (Outcome, error) {
	x, replay, err := e.Begin(ctx, c)
	if err != nil {
		return Outcome{}, err
	}
	if replay != nil {
		return *replay, nil
	}
	defer x.Stop()
	result, err := x.run(fn)
	out, settled := x.Outcome(ctx)
	switch {
	case settled == nil: // fn completed it, or its transaction did
		return out, nil
	case x.HandedOver():
		rec := x.Record()
		return Outcome{}, errors.Join(err, e.refuse(ErrAccepted, &rec))
	case errors.Is(settled, ErrSettled): // released or quarantined by fn
		return Outcome{}, err
	case errors.Is(settled, ErrLost), errors.Is(settled, ErrUnsettled):
		return Outcome{}, errors.Join(err, settled)
	case err == nil && x.Fenced() && errors.Is(settled, ErrOpen):
		err = errRolledBack
	case err == nil && x.Fenced(): // nobody can say yet; the settlement below waits and finds out
		err = settled
	}
	if err != nil {
		end := x.Fail
		if e.policy.OnFailure == FailureRetry {
			end = x.Release
		}
		failed := end(ctx, err)
		if errors.Is(failed, ErrSettled) { // its transaction had committed after all
			return x.Outcome(ctx)
		}
		return Outcome{}, errors.Join(err, failed)
	}
	if err := x.Complete(ctx, result); err != nil {
		return Outcome{}, err
	}
	return x.Outcome(ctx)
}

// errRolledBack: the transaction that was to hold the answer did not commit.
var errRolledBack = errors.New("retrysafe: the transaction that held the answer rolled back")

// errGoexit stands for a function that ended its goroutine.
var errGoexit = errors.New("the operation ended its goroutine")

// run calls fn and settles the execution if fn does not come back.
func (x *Execution) run(fn func(context.Context, *Execution) (Result, error)) (result Result, err error) {
	back := false
	defer func() {
		if back {
			return
		}
		p := recover()
		why := errGoexit
		if p != nil {
			why = fmt.Errorf("panic: %v", p)
		}
		_ = x.Fail(x.ctx.parent, why) // the panic is the caller's to hear of; the record says why
		if p != nil {
			panic(p) //nolint:forbidigo // not ours: the operation's own panic goes on
		}
	}()
	result, err = fn(x.Context(), x)
	back = true
	return result, err
}
