package retrysafe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Phase runs fn as one step of the operation that runs in ctx, stores its result,
// and returns it. An attempt that resumes the operation does not run it again: it
// gets the stored result, at no cost. The checkpoint is one write for each phase,
// and renews the lease.
//
// A crash between fn and that write runs fn again, so what it does must bear
// repeating. Writes to the store's own database belong into [PhaseTx], outside
// calls into [Effect].
//
// Results go through JSON, on the first run too. One that does not decode into T
// any more, or that has members which T does not, fails: it is of another program.
// All steps of an operation together may take [MaxStepBytes].
//
// Steps have names that are unique in their operation. They follow each other,
// without nesting or overlapping, and in the same order on each attempt: a
// [Phase] that does not fit what is stored fails with [ErrPhases] and does not run,
// and an operation that has not passed all stored steps cannot be completed. An
// error of fn is not stored, so no other step can follow it: a step that the next
// one depends on returns a result that says so. The same phase may be tried again.
//
// An execution that is lost, settled or has run too long runs no further phase. The
// policy's Lapse must not be [Rerun]. Without an execution in ctx, fn is just
// called, so that handlers stay testable.
func Phase[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var out T
	s := Step{Name: name}
	x, err := walker(ctx, &s)
	if err != nil {
		return out, err
	}
	if x == nil {
		return fn(ctx)
	}
	return passed(&s, &out, x.takePhase(ctx, &s, func() error {
		v, err := fn(ctx)
		if err != nil {
			return err
		}
		return s.returns(v, &out)
	}))
}

// takePhase runs a phase unless it is finished.
func (x *Execution) takePhase(ctx context.Context, s *Step, run func() error) error {
	stored, err := x.arrive(ctx, s)
	if err != nil {
		return err
	}
	if stored != nil {
		s.Result = stored.Result
		return errPassed
	}
	defer x.depart()
	if err := run(); err != nil {
		return err
	}
	return x.finish(ctx, s)
}

// finish stores the result of the step that runs.
func (x *Execution) finish(ctx context.Context, s *Step) error {
	x.mu.Lock()
	x.walk.doubt = true
	next, err := x.walk.with(s)
	x.mu.Unlock()
	if err != nil {
		return err
	}
	if err := x.keep(ctx, next); err != nil {
		return fmt.Errorf("%s has run, and its result is not stored: %w", s, err)
	}
	x.reach(s, next.Data)
	return nil
}

// errPassed: the step is finished, and its result is stored.
var errPassed = errors.New("passed")

// passed returns the result of a step: the one in out, or the stored one.
func passed[T any](s *Step, out *T, err error) (T, error) {
	if err == errPassed { //nolint:errorlint // the very value
		err = s.decode(out)
	}
	if err != nil {
		return *new(T), err
	}
	return *out, nil
}

// returns sets the result of the step, and out to what a resumed attempt will get
// for it.
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
