package httpkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/retrysafe/retrysafe"
)

// execute runs the handler, settles the execution, and only then sends the answer.
func (g *Guard) execute(w http.ResponseWriter, r *http.Request, run *retrysafe.Execution, body []byte, next http.Handler) {
	x := &exchange{g: g, w: w, r: r, run: run}
	defer run.Stop()
	seen := x.withBody(r, body)
	err := x.serve(next, seen)
	if seen.MultipartForm != nil { // the server removes the files of its own request, not of this copy
		_ = seen.MultipartForm.RemoveAll()
	}
	if err != nil {
		x.finishBroken(err)
		return
	}
	x.finish()
}

// errGoexit: the handler ended its goroutine, as a failing test does.
var errGoexit = errors.New("the handler ended its goroutine")

// panicError is a handler's panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// serve calls the handler and returns its panic, if there was one.
func (x *exchange) serve(next http.Handler, r *http.Request) (err error) {
	back := false
	defer func() {
		switch p := recover(); {
		case back:
		case p != nil:
			err = &panicError{p, debug.Stack()}
		default:
			x.finishBroken(errGoexit)                   // the goroutine ends after this,
			_ = http.NewResponseController(x.w).Flush() // and the server drops what it has not sent
		}
	}()
	next.ServeHTTP(x, r)
	back = true
	return nil
}

// finish settles a response that the handler has finished, and sends it.
func (x *exchange) finish() {
	ctx := x.r.Context()
	if x.direct {
		x.sendTrailers()
		return
	}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	out, err := retrysafe.Outcome{}, retrysafe.ErrOpen
	if !x.run.Untouched() {
		out, err = x.run.Outcome(ctx)
	}
	switch {
	case err == nil && !(x.sealed && out.Result.Equal(&x.taken)): // the handler completed the execution with another result
		x.g.replayFirst(x.w, x.r, &out)
	case err == nil: // the transaction of CompleteTx has committed
		x.send()
	case errors.Is(err, retrysafe.ErrLost), errors.Is(err, retrysafe.ErrUnsettled):
		x.refuseUnsettled(err)
	case x.sealed, x.rolledBack, errors.Is(err, retrysafe.ErrOpen) && x.run.Fenced():
		x.finishUncommitted(err)
	case x.run.HandedOver() && x.status != http.StatusAccepted: // the first client gets the 202 that retries get
		x.g.refuse(x.w, x.r, x.run.Ref().Key, x.g.explain(x.r, x.run.Ref().Key, retrysafe.ErrAccepted))
	case errors.Is(err, retrysafe.ErrSettled): // the handler released, quarantined or handed over the execution
		x.send()
	case x.fault != nil:
		x.finishBroken(x.fault)
	default:
		if err := x.settle(false); err != nil {
			x.refuseUnsettled(err)
			return
		}
		x.send()
	}
}

// finishUncommitted settles a response whose transaction has not committed, as far as
// the store can say. Settling it as failed waits for a commit that is under way, and
// finds the answer if it took place.
func (x *exchange) finishUncommitted(cause error) {
	ctx := x.r.Context()
	err := x.run.Fail(ctx, fmt.Errorf("%w: %w", errRolledBack, cause))
	settled := errors.Is(err, retrysafe.ErrSettled)
	if settled {
		var out retrysafe.Outcome
		if out, err = x.run.Outcome(ctx); err == nil && !(x.sealed && out.Result.Equal(&x.taken)) {
			x.g.replayFirst(x.w, x.r, &out)
			return
		}
	}
	switch {
	case settled && err == nil:
		x.send()
	case err != nil && !settled:
		x.refuseUnsettled(err)
	default: // nothing was committed, also if the handler has settled the execution itself
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: x.broken(), status: http.StatusServiceUnavailable, retryAfter: time.Second})
	}
}

// errRolledBack: the transaction that held the answer did not commit.
var errRolledBack = errors.New("the transaction rolled back")

// settle settles the execution by the status of the response.
func (x *exchange) settle(omitted bool) error {
	ctx := x.r.Context()
	switch meaning(x.status, x.g.policy.OnFailure) {
	case stored:
		return x.run.Complete(ctx, x.result(omitted))
	case notExecuted:
		return x.run.Release(ctx, statusError(x.status))
	default:
		return x.run.Fail(ctx, statusError(x.status))
	}
}

// statusError is the reason of an attempt that failed with a status.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("the handler answered %d", int(s)) }

// What a status means for the operation.
const (
	stored      = iota // it is the answer
	notExecuted        // the request was refused before anything happened
	failed             // the attempt failed; the effect mode says what that proves
)

// meaning returns what a final status means. A client error that a later attempt may
// overcome with the same request is not stored. A bad gateway or a timeout never is,
// because the handler itself does not know the outcome.
func meaning(status int, onFailure retrysafe.FailurePolicy) int {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusRequestTimeout,
		status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return notExecuted
	case status < 500:
		return stored
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return failed
	case onFailure == retrysafe.FailureStore:
		return stored
	case onFailure == retrysafe.FailureRetry:
		return notExecuted
	default:
		return failed
	}
}

// finishBroken settles the execution of a handler that did not return, by what is
// proven.
func (x *exchange) finishBroken(cause error) {
	ctx := x.r.Context()
	var p *panicError
	panicked := errors.As(cause, &p)
	abort := panicked && p.value == http.ErrAbortHandler //nolint:errorlint // net/http compares the same way
	if !abort {
		args := []any{"operation", x.g.operation(x.r), "error", cause}
		if panicked {
			args = append(args, "stack", string(p.stack))
		}
		x.g.o.Logger.Error("retrysafe: handler did not finish", args...)
	}
	var err error
	if !x.direct { // otherwise the outcome is stored already
		err = x.run.Fail(ctx, cause)
	}
	if abort || x.direct || panicked && x.g.o.Repanic {
		value := any(http.ErrAbortHandler)
		if panicked && !x.direct {
			value = p.value
		}
		panic(value) //nolint:forbidigo // the handler's own panic goes on, or a half-sent response is cut
	}
	switch {
	case errors.Is(err, retrysafe.ErrSettled): // the answer was durable before the handler failed
		if out, err := x.run.Outcome(ctx); err == nil {
			x.g.replayFirst(x.w, x.r, &out)
			return
		}
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: x.broken()})
	case err != nil:
		x.refuseUnsettled(err)
	default:
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: x.broken()})
	}
}

// broken returns the problem that says how a failed attempt was settled.
func (x *exchange) broken() *problem {
	if x.run.State() == retrysafe.StateUnknown {
		return attemptUnknown
	}
	return attemptFailed
}

// refuseUnsettled answers for an attempt whose own answer must not be shown. If another
// process has settled the record, the client gets the stored answer, else what is
// known.
func (x *exchange) refuseUnsettled(err error) {
	key := x.run.Ref().Key
	if errors.Is(err, retrysafe.ErrSettled) { // by a transaction that committed, even if its caller got an error
		if out, err := x.run.Outcome(x.r.Context()); err == nil {
			x.g.replayFirst(x.w, x.r, &out)
			return
		}
	}
	if errors.Is(err, retrysafe.ErrPhases) && !errors.Is(err, retrysafe.ErrLost) { // it was settled by what is proven, and has no answer
		x.g.refuse(x.w, x.r, key, refusal{problem: x.broken()})
		return
	}
	if !errors.Is(err, retrysafe.ErrLost) {
		x.g.refuse(x.w, x.r, key, refusal{problem: outcomePending, retryAfter: time.Second})
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.r.Context()))
	defer cancel()
	rec := x.run.Record()
	out, err := x.g.engine.Peek(ctx, retrysafe.Call{Ref: rec.Ref, Operation: rec.Operation, Fingerprint: rec.Fingerprint})
	if err == nil {
		x.g.replay(x.w, x.r, out)
		return
	}
	switch {
	case errors.Is(err, retrysafe.ErrNotFound), errors.Is(err, retrysafe.ErrMismatch):
		err = &retrysafe.RefusedError{Err: retrysafe.ErrUnknown}
	case errors.Is(err, retrysafe.ErrUnavailable): // the request was executed, so its text would be wrong
		x.g.refuse(x.w, x.r, key, refusal{problem: outcomePending, retryAfter: time.Second})
		return
	}
	x.g.refuse(x.w, x.r, key, x.g.explain(x.r, key, err))
}

// CompleteTx stores the response that the handler has written so far to w in the
// handler's transaction, so that effects and answer commit together. Call it as the
// last step before the commit; the response cannot change afterwards. On an error the
// transaction is rolled back already. Unless the response is stored in another one, the
// client gets a response that says that the attempt failed, whatever the handler wrote.
//
// W is the handler's ResponseWriter or one that unwraps to it. Outside a guard it does
// nothing, so that handlers stay testable.
func CompleteTx(ctx context.Context, w http.ResponseWriter, tx retrysafe.Tx) error {
	for {
		switch t := w.(type) {
		case *exchange:
			return t.completeTx(ctx, tx)
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

func (x *exchange) completeTx(ctx context.Context, tx retrysafe.Tx) error {
	if x.direct || x.fault != nil {
		return errors.Join(cmp.Or(x.fault, errUnfenced), tx.Rollback(context.WithoutCancel(ctx)))
	}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	res := x.result(false)
	if err := x.run.CompleteTx(ctx, tx, res); err != nil {
		x.rolledBack = true
		return err
	}
	x.header = x.header.Clone() // the handler may have kept the one it was given
	x.sealed, x.rolledBack, x.taken = true, false, res
	return nil
}
