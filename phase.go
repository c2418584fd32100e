package retrysafe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Phase runs fn as one step of the operation that runs in ctx, stores its result, and
// returns it. An attempt that resumes the operation does not run fn again: it gets the
// stored result, at no cost. Each phase costs one write, the checkpoint, which also
// renews the lease.
//
// A crash between fn and that write runs fn again, so repeating fn must do no harm.
// Writes to the store's own database belong into [PhaseTx], outside calls into
// [Effect].
//
// Results go through JSON, on the first run too. A stored result that no longer decodes
// into T, or that has members which T has not, is an error: another version of the
// program wrote it. All steps of an operation together may take 256 KiB.
//
// The names of steps are unique in their operation. Steps do not nest or overlap, and
// run in the same order on each attempt. A [Phase] that does not fit what is stored
// fails with [ErrPhases] and does not run, and an operation that has not passed all
// stored steps cannot be completed. An error of fn is not stored, so no other step can
// follow it: if the next step depends on a failure, return the failure as a result. The
// same phase may be tried again.
//
// An execution that is lost, settled or has run too long runs no further phase. The
// policy's Lapse must not be [LapseRerun]. Without an execution in ctx, Phase just
// calls fn, so that handlers stay testable.
func Phase[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var out T
	s := Step{Name: name}
	x, err := executionOf(ctx, &s)
	if err != nil {
		return out, err
	}
	if x == nil {
		return fn(ctx)
	}
	return stepResult(&s, &out, x.runPhase(ctx, &s, func() error {
		v, err := fn(ctx)
		if err != nil {
			return err
		}
		return s.returns(v, &out)
	}))
}

// runPhase runs a phase unless its result is stored.
func (x *Execution) runPhase(ctx context.Context, s *Step, run func() error) error {
	stored, err := x.beginStep(ctx, s)
	if err != nil {
		return err
	}
	if stored != nil {
		s.Result = stored.Result
		return errAlreadyDone
	}
	defer x.endStep()
	if err := run(); err != nil {
		return err
	}
	return x.storeResult(ctx, s)
}

// storeResult stores the result of the running step.
func (x *Execution) storeResult(ctx context.Context, s *Step) error {
	x.mu.Lock()
	x.log.uncertain = true
	next, err := x.log.checkpointWith(s)
	x.mu.Unlock()
	if err != nil {
		return err
	}
	if err := x.saveCheckpoint(ctx, next); err != nil {
		return fmt.Errorf("%s has run, and its result is not stored: %w", s, err)
	}
	x.stepFinished(s, next.Data)
	return nil
}

// errAlreadyDone: the step was finished by an earlier attempt, and its result is
// stored.
var errAlreadyDone = errors.New("passed")

// stepResult returns the result of a step: the one in out, or the stored one.
func stepResult[T any](s *Step, out *T, err error) (T, error) {
	if err == errAlreadyDone { //nolint:errorlint // the very value
		err = s.decode(out)
	}
	if err != nil {
		return *new(T), err
	}
	return *out, nil
}

// returns sets the step's result to v, and out to what a resumed attempt will get for
// it.
func (s *Step) returns(v, out any) (err error) {
	if s.Result, err = json.Marshal(v); err != nil {
		return fmt.Errorf("%w: the result of %s cannot be stored: %w", ErrPhases, s, err)
	}
	return s.decode(out)
}

// decode reads the result of the step into out.
func (s *Step) decode(out any) error {
	d := json.NewDecoder(bytes.NewReader(s.Result))
	d.DisallowUnknownFields() // a member that was renamed must not turn into a zero
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("%w: the stored result of %s is not what the program expects: %w", ErrPhases, s, err)
	}
	return nil
}
