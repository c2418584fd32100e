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

// execute runs the handler, settles what came of it, and only then answers.
func (g *Guard) execute(w http.ResponseWriter, r *http.Request, run *retrysafe.Execution, body []byte, next http.Handler) {
	x := &exchange{g: g, w: w, r: r, run: run}
	defer run.Stop()
	seen := x.withBody(r, body)
	err := x.serve(next, seen)
	if seen.MultipartForm != nil { // the server cleans up after the request it knows, not after this copy
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
			x.finishBroken(errGoexit)                   // the goroutine goes on ending behind this,
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
	case err == nil && !(x.sealed && out.Result.Equal(&x.taken)): // the handler completed it with a result of its own
		x.g.replayFirst(x.w, x.r, &out)
	case err == nil: // its transaction committed
		x.send()
	case errors.Is(err, retrysafe.ErrLost), errors.Is(err, retrysafe.ErrUnsettled):
		x.refuseUnsettled(err)
	case x.sealed, x.rolledBack, errors.Is(err, retrysafe.ErrOpen) && x.run.Fenced():
		x.finishUncommitted(err)
	case x.run.HandedOver() && x.status != http.StatusAccepted: // retries are told the same
		x.g.refuse(x.w, x.r, x.run.Ref().Key, x.g.explain(x.r, x.run.Ref().Key, retrysafe.ErrAccepted))
	case errors.Is(err, retrysafe.ErrSettled): // the handler released or quarantined it, or handed it over
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

// finishUncommitted settles a response whose transaction has not committed, as
// far as the store can say. Settling it as failed waits for a commit that is
// under way, and meets the answer if it took place.
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
	default: // nothing was committed, also if the handler itself has settled that
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

// statusError is a status as a reason.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("the handler answered %d", int(s)) }

// What a status says about the operation.
const (
	stored      = iota // it is the answer
	notExecuted        // it was turned away before anything happened
	failed             // it failed; the effect mode says what that proves
)

// meaning says what a final status means. Caller errors that a later attempt
// may overcome without changing the request are not answers; a bad gateway or a
// time-out never is, because the handler itself does not know.
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

// finishBroken settles a handler that did not come back, by what is proven.
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
	if !x.direct { // otherwise its outcome is stored already
		err = x.run.Fail(ctx, cause)
	}
	if abort || x.direct || panicked && x.g.o.Repanic {
		value := any(http.ErrAbortHandler)
		if panicked && !x.direct {
			value = p.value
		}
		panic(value) //nolint:forbidigo // not ours: the handler's own panic goes on, or a half-sent response is cut
	}
	switch {
	case errors.Is(err, retrysafe.ErrSettled): // the answer was durable before the handler broke
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

// broken is the problem that tells how a failed attempt was settled.
func (x *exchange) broken() *problem {
	if x.run.State() == retrysafe.StateUnknown {
		return attemptUnknown
	}
	return attemptFailed
}

// refuseUnsettled answers for an attempt whose own answer must not be shown:
// with the stored one if somebody else settled it, else with what is known.
func (x *exchange) refuseUnsettled(err error) {
	key := x.run.Ref().Key
	if errors.Is(err, retrysafe.ErrSettled) { // by a transaction that committed, whatever its caller was told
		if out, err := x.run.Outcome(x.r.Context()); err == nil {
			x.g.replayFirst(x.w, x.r, &out)
			return
		}
	}
	if errors.Is(err, retrysafe.ErrPhases) && !errors.Is(err, retrysafe.ErrLost) { // it was settled by proof, and has no answer
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
	case errors.Is(err, retrysafe.ErrUnavailable): // to say that it was not executed would be wrong
		x.g.refuse(x.w, x.r, key, refusal{problem: outcomePending, retryAfter: time.Second})
		return
	}
	x.g.refuse(x.w, x.r, key, x.g.explain(x.r, key, err))
}

// CompleteTx hands the response that the handler has written so far to w over
// to its transaction, so that effects and answer commit together. Call it as the
// last step before the commit; the response cannot change afterwards. On an
// error the transaction is rolled back already; unless another one takes the
// response, the client is told that the attempt failed, whatever was written.
//
// W is the handler's ResponseWriter or one that unwraps to it. Outside a guard
// it does nothing, so that handlers stay testable.
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
