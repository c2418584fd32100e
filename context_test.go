package retrysafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
)

type valueOf string

// A context is a value like any other, also the one that the caller cancels.
func TestExecutionSeesTheCallersValuesAndNotItsCancellation(t *testing.T) {
	t.Parallel()
	kept, end := context.WithCancelCause(context.WithValue(t.Context(), valueOf("inner"), "inside"))
	end(errors.New("the kept one has ended"))
	outer, hangUp := context.WithCancelCause(context.WithValue(context.WithValue(t.Context(), valueOf("kept"), kept), valueOf("trace"), "trace"))
	x, _, err := setup(t, retrysafe.Policy{}).Begin(outer, call())
	must(t, err)
	defer x.Stop()
	hangUp(errors.New("the client hung up"))
	ctx := x.Context()
	if got := ctx.Value(valueOf("trace")); got != "trace" {
		t.Errorf("the trace is %v", got)
	}
	if got, ok := ctx.Value(valueOf("kept")).(context.Context); !ok || got != kept {
		t.Errorf("a context that the caller has put there is %v", got)
	}
	if got := ctx.Value(valueOf("inner")); got != nil {
		t.Errorf("a value of that context is found: %v", got)
	}
	if err := context.Cause(ctx); err != nil { // it asks by the private key of package context
		t.Errorf("the execution has ended with the caller: %v", err)
	}
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	if derived.Err() != nil || context.Cause(derived) != nil {
		t.Errorf("a context derived from it has ended with the caller: %v", context.Cause(derived))
	}
}

// The deadline of an operation counts from its beginning, whenever it is asked for.
func TestDeadlineOfAnExecutionCountsFromItsBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x, until := b.begins(t), time.Now().Add(b.Policy().MaxRun)
		time.Sleep(time.Minute)
		if got, ok := x.Context().Deadline(); !ok || !got.Equal(until) {
			t.Errorf("the deadline is %v, want %v", got, until)
		}
		must(t, x.Release(t.Context(), nil))
	})
}

// It counts allocations, so it does not run beside other tests.
func TestValueOfAnExecutionsContextAllocatesNothing(t *testing.T) {
	outer, cancel := context.WithCancel(context.WithValue(t.Context(), valueOf("trace"), "trace"))
	defer cancel()
	x, _, err := setup(t, retrysafe.Policy{}).Begin(outer, call())
	must(t, err)
	defer x.Stop()
	ctx, asked := x.Context(), any(valueOf("trace"))
	if n := testing.AllocsPerRun(100, func() {
		if ctx.Value(asked) != "trace" {
			t.Error("the trace is gone")
		}
	}); n != 0 {
		t.Errorf("a lookup allocates %v times", n)
	}
}
