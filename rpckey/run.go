package rpckey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"time"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// exchange is one guarded call whose handler runs.
type exchange struct {
	g      *Guard
	ctx    context.Context // as the transport passed it
	c      *Call
	output protoreflect.MessageDescriptor // what the method returns, if that is known
	run    *retrysafe.Execution

	// completed is the transaction that CompleteTx has put an answer into.
	completed retrysafe.Tx
	// rolledBack: the last transaction that CompleteTx was given was rolled back, so
	// what the handler returns describes effects that are undone.
	rolledBack bool
	// undone: that rollback is certain.
	undone bool
}

type exchangeKey struct{}

// execute runs the handler and settles the execution. Only then the answer may be sent.
func (x *exchange) execute(next Next) Answer {
	defer x.run.Stop()
	back := false
	defer func() {
		if !back { // the handler ended its goroutine, so no answer is sent
			_ = x.settleBroken(errGoexit)
		}
	}()
	a, err := callHandler(context.WithValue(x.run.Context(), exchangeKey{}, x), next, true)
	back = true
	if err != nil {
		return x.finishBroken(err)
	}
	return x.finish(a)
}

// panicError is a handler's panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// aborts reports whether the panic is the one by which a handler of net/http drops its
// connection.
func (e *panicError) aborts() bool {
	return e.value == http.ErrAbortHandler //nolint:errorlint // net/http compares the same way
}

// asPanic returns the panic that err is, or nil.
func asPanic(err error) *panicError {
	var p *panicError
	_ = errors.As(err, &p)
	return p
}

var (
	// errGoexit: the handler ended its goroutine, as a failing test does.
	errGoexit = errors.New("the handler ended its goroutine")
	// errNothing: there is nothing to store or to send.
	errNothing = errors.New("the handler returned neither a response nor an error")
	// errRolledBack: the transaction that held the answer did not commit.
	errRolledBack = errors.New("the transaction rolled back")
	// errNotInTx: effects and answer were to commit together.
	errNotInTx = errors.New("the handler succeeded without a completion in its transaction")
)

// callHandler calls the handler. An error says that it gave no answer: its panic, or
// that it returned nothing.
func callHandler(ctx context.Context, next Next, guarded bool) (a Answer, err error) {
	back := false
	defer func() {
		if back {
			return
		}
		if p := recover(); p != nil { // otherwise it ends its goroutine
			err = &panicError{p, debug.Stack()}
		}
	}()
	a = next(ctx, guarded)
	back = true
	if a.Status == nil && (a.Message == nil || !a.Message.ProtoReflect().IsValid()) {
		err = errNothing
	}
	return a, err
}

// logBroken logs why a handler gave no answer.
func (g *Guard) logBroken(procedure, key string, cause error) {
	args := []any{"procedure", procedure, "key", retrysafe.HashKey(key), "error", cause}
	if p := asPanic(cause); p != nil {
		if p.aborts() {
			return
		}
		args = append(args, "stack", string(p.stack))
	}
	g.o.Logger.Error("retrysafe: handler did not finish", args...)
}

// finish settles an answer that the handler has given.
func (x *exchange) finish(a Answer) Answer {
	res, err := x.g.result(&a)
	if err != nil {
		return x.finishBroken(fmt.Errorf("encode response: %w", err))
	}
	if x.completed != nil { // a transaction that the handler has left open would hold the key
		_ = x.completed.Rollback(context.WithoutCancel(x.ctx))
	}
	out, err := retrysafe.Outcome{}, retrysafe.ErrOpen
	if !x.run.Untouched() {
		out, err = x.run.Outcome(x.ctx)
	}
	switch {
	case err == nil && out.Result.Equal(&res): // the transaction of CompleteTx has committed
		return x.own(a)
	case err == nil: // the execution was completed with another result than the handler returned
		return x.stored(&out)
	case errors.Is(err, retrysafe.ErrLost), errors.Is(err, retrysafe.ErrUnsettled):
		return x.refuseUnsettled(err)
	case x.completed != nil, x.rolledBack, errors.Is(err, retrysafe.ErrOpen) && x.run.Fenced():
		return x.finishUncommitted(err, a.Status == nil)
	case x.run.HandedOver(): // the first caller gets what retries get
		return x.refuse(x.g.explain(x.c.Procedure, x.key(), retrysafe.ErrAccepted))
	case errors.Is(err, retrysafe.ErrSettled) && a.Status != nil: // the handler released or quarantined the execution
		return x.own(a)
	case errors.Is(err, retrysafe.ErrSettled): // so it has no success to tell of
		return x.refuse(&refusal{problem: x.broken()})
	}
	switch x.g.meaning(&a) {
	case MeaningAnswer:
		if a.Status == nil && x.g.policy.Effects == retrysafe.EffectsInTx {
			return x.finishNotInTx()
		}
		err = x.run.Complete(x.ctx, res)
	case MeaningNotExecuted:
		err = x.run.Release(x.ctx, reason(&a))
	default:
		err = x.run.Fail(x.ctx, reason(&a))
	}
	if err != nil {
		return x.refuseUnsettled(err)
	}
	return x.own(a)
}

// reason returns why an attempt failed, for operators.
func reason(a *Answer) error {
	if a.Err != nil {
		return a.Err
	}
	return fmt.Errorf("the handler answered %s", codepb.Code(a.Status.GetCode()))
}

// finishNotInTx settles a success whose effects were to commit together with it, and
// did not: whether they took place is not known.
func (x *exchange) finishNotInTx() Answer {
	x.g.o.Logger.Error("retrysafe: a call with in-transaction effects succeeded without completing in its transaction, so its outcome is set aside as unknown; "+
		"let it run in a transaction by rpckey.Options.Tx, or call CompleteTx before its commit, or declare other effects", "procedure", x.c.Procedure, "key", retrysafe.HashKey(x.key()))
	if err := x.run.Quarantine(x.ctx, errNotInTx); err != nil {
		return x.refuseUnsettled(err)
	}
	return x.refuse(&refusal{problem: notInTransaction})
}

// finishUncommitted settles an answer whose transaction has not committed, as far as
// the store can say. Settling it as failed waits for a commit that is under way, and
// finds the answer if it took place.
func (x *exchange) finishUncommitted(cause error, success bool) Answer {
	cause = fmt.Errorf("%w: %w", errRolledBack, cause)
	if x.undone {
		cause = retrysafe.NotExecuted(cause)
	}
	err := x.run.Fail(x.ctx, cause)
	settled := errors.Is(err, retrysafe.ErrSettled)
	if settled {
		if out, err := x.run.Outcome(x.ctx); err == nil {
			return x.stored(&out)
		}
	}
	if success {
		x.g.o.Logger.Error("retrysafe: a handler returned a response whose transaction did not commit, so the response was not sent; "+
			"commit after CompleteTx, and return the error of the commit; or let rpckey.Options.Tx do both", "procedure", x.c.Procedure, "key", retrysafe.HashKey(x.key()))
	}
	if err != nil && !settled {
		return x.refuseUnsettled(err)
	}
	return x.refuse(&refusal{problem: x.broken(), status: codepb.Code_UNAVAILABLE, retryAfter: time.Second})
}

// finishBroken settles the execution of a handler that gave no answer, by what is
// proven.
func (x *exchange) finishBroken(cause error) Answer {
	err := x.settleBroken(cause)
	if p := asPanic(cause); p != nil && (x.g.o.Repanic || p.aborts()) {
		panic(p.value) //nolint:forbidigo // the handler's own panic goes on
	}
	switch {
	case errors.Is(err, retrysafe.ErrSettled): // the answer was durable before the handler failed
		if out, err := x.run.Outcome(x.ctx); err == nil {
			return x.stored(&out)
		}
	case err != nil:
		return x.refuseUnsettled(err)
	}
	return x.refuse(&refusal{problem: x.broken()})
}

// settleBroken settles and logs the attempt of a handler that gave no answer.
func (x *exchange) settleBroken(cause error) error {
	x.g.logBroken(x.c.Procedure, x.key(), cause)
	if x.completed != nil {
		_ = x.completed.Rollback(context.WithoutCancel(x.ctx)) // it may be open; if it has committed, that changes nothing
	}
	return x.run.Fail(x.ctx, cause)
}

// broken returns the problem that says how a failed attempt was settled.
func (x *exchange) broken() *problem {
	if x.run.State() == retrysafe.StateUnknown {
		return attemptUnknown
	}
	return attemptFailed
}

// refuseUnsettled answers for an attempt whose own answer must not be shown. If another
// process has settled the record, the caller gets the stored answer, else what is known.
func (x *exchange) refuseUnsettled(err error) Answer {
	pending := &refusal{problem: outcomePending, retryAfter: time.Second}
	if errors.Is(err, retrysafe.ErrSettled) { // by a transaction that committed, even if its caller got an error
		if out, err := x.run.Outcome(x.ctx); err == nil {
			return x.stored(&out)
		}
	}
	if errors.Is(err, retrysafe.ErrPhases) && !errors.Is(err, retrysafe.ErrLost) && !errors.Is(err, retrysafe.ErrUnsettled) { // it was settled by what is proven, and has no answer
		return x.refuse(&refusal{problem: x.broken()})
	}
	if errors.Is(err, storemove.ErrMoved) && !errors.Is(err, retrysafe.ErrLost) { // the record has moved as it was, in flight
		return x.refuse(x.g.explain(x.c.Procedure, x.key(), &retrysafe.RefusedError{Err: retrysafe.ErrUnknown}))
	}
	if !errors.Is(err, retrysafe.ErrLost) {
		return x.refuse(pending)
	}
	rec := x.run.Record()
	out, err := x.g.engine.Peek(context.WithoutCancel(x.ctx), retrysafe.Call{Ref: rec.Ref, Operation: rec.Operation, Fingerprint: rec.Fingerprint})
	switch {
	case err == nil:
		return x.g.replay(x.c.Procedure, x.output, x.key(), out)
	case errors.Is(err, retrysafe.ErrNotFound), errors.Is(err, retrysafe.ErrMismatch):
		err = &retrysafe.RefusedError{Err: retrysafe.ErrUnknown}
	case errors.Is(err, retrysafe.ErrUnavailable): // the call was executed, so its text would be wrong
		return x.refuse(pending)
	}
	return x.refuse(x.g.explain(x.c.Procedure, x.key(), err))
}

func (x *exchange) key() string { return x.run.Ref().Key }

func (x *exchange) refuse(re *refusal) Answer { return x.g.refuse(x.c.Procedure, x.key(), re) }

// stored returns the answer that the execution was completed with, which is not the one
// that the handler returned.
func (x *exchange) stored(out *retrysafe.Outcome) Answer {
	return x.g.stored(x.c.Procedure, x.output, x.key(), out)
}

// own returns the handler's own answer. If it is not stored, nothing is added to it: a
// client of gRPC that has got a header does not retry by its policy.
func (x *exchange) own(a Answer) Answer {
	if t, ok := x.run.Expires(); ok && x.run.State() == retrysafe.StateCompleted {
		return own(a, t)
	}
	return a
}

// own returns the handler's own answer, with the time at which it is forgotten.
func own(a Answer, t time.Time) Answer {
	a.Header = withExpiry(maps.Clone(a.Header), t)
	return a
}
