package httpkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// execute runs the handler, settles the execution, and only then sends the answer.
func (g *Guard) execute(w http.ResponseWriter, r *http.Request, run *retrysafe.Execution, body []byte, next http.Handler) {
	x := &exchange{g: g, w: w, r: r, run: run}
	defer run.Stop()
	seen := x.withBody(run.Context(), r, body)
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
	empty := x.status == 0
	if empty {
		x.status = http.StatusOK
	}
	x.closeTx()
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
	case x.run.HandedOver() && (x.fault != nil || !x.tellable()): // the first client gets the 202 that retries get
		if x.fault != nil {
			x.logBroken(x.fault)
		}
		x.g.refuse(x.w, x.r, x.run.Ref().Key, x.g.explain(x.r, x.run.Ref().Key, retrysafe.ErrAccepted))
	case errors.Is(err, retrysafe.ErrSettled) && x.fault == nil && (empty || !x.tellable()):
		if !empty {
			x.g.logDefect(x.r, errNoSuccess, "answer with a status of 400 or above after Release or Quarantine, or do not call them")
		}
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: x.broken()})
	case errors.Is(err, retrysafe.ErrSettled) && x.fault == nil: // the handler released, quarantined or handed over the execution
		x.send()
	case x.fault != nil: // also after a settlement of the handler's own
		x.finishBroken(x.fault)
	case empty && !x.g.o.AllowEmpty:
		x.finishEmpty()
	default:
		if err := x.settle(false); err != nil {
			x.refuseUnsettled(err)
			return
		}
		x.send()
	}
}

// tellable reports whether a response may be sent although the handler has released,
// quarantined or handed over the execution. What was released or quarantined has no
// success to tell of; its clients may get a 202, and so do those of a request that was
// handed over, as retries do.
func (x *exchange) tellable() bool {
	return x.status == http.StatusAccepted || x.status >= 400 && !x.run.HandedOver()
}

// finishEmpty settles the attempt of a handler that wrote nothing: as failed, by what is
// proven.
func (x *exchange) finishEmpty() {
	x.g.logDefect(x.r, errNoAnswer, "write a status or a body on every path; with a framework, render its errors inside the guard (docs/frameworks.md); or set Options.AllowEmpty")
	if err := x.run.Fail(x.r.Context(), errNoAnswer); err != nil {
		x.refuseUnsettled(err)
		return
	}
	x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: noAnswer, retryAfter: time.Second})
}

// failAttempt settles the attempt as failed, by what is proven.
func (x *exchange) failAttempt(cause error) error {
	if x.undone {
		cause = retrysafe.NotExecuted(cause)
	}
	return x.run.Fail(x.r.Context(), cause)
}

// logDefect logs a defect of a handler, and its fix.
func (g *Guard) logDefect(r *http.Request, defect error, fix string) {
	g.o.Logger.Error("retrysafe: the handler of a guarded route has a defect", "operation", g.operation(r), "defect", defect, "fix", fix)
}

// logPending logs that a request ran and that its answer is not stored: if it never is, the
// line names the key whose outcome will be unknown.
func (g *Guard) logPending(r *http.Request, key string, why error) {
	g.o.Logger.Warn("retrysafe: the request ran, and its answer is not stored yet", "operation", g.operation(r), "key", retrysafe.HashKey(key), "error", why)
}

// closeTx rolls back the transaction that CompleteTx was given, if the handler has left
// it open: it would hold the key until its connection is closed.
func (x *exchange) closeTx() {
	if x.inTx != nil && rolledBackOpen(x.r.Context(), x.inTx) {
		x.leftOpen = true
		x.g.logDefect(x.r, errNotCommitted, "commit the transaction after CompleteTx, before the handler returns; or let httpkey.TxHandler do both")
	}
	if x.dropped {
		x.g.logDefect(x.r, errSealed, "write the whole response before CompleteTx; what was written after it is dropped")
	}
}

// rolledBackOpen rolls back a transaction if it is open, and reports whether it was.
func rolledBackOpen(ctx context.Context, tx retrysafe.Tx) bool {
	return tx.Rollback(context.WithoutCancel(ctx)) == nil
}

// finishUncommitted settles a response whose transaction has not committed, as far as
// the store can say. Settling it as failed waits for a commit that is under way, and
// finds the answer if it took place.
func (x *exchange) finishUncommitted(cause error) {
	ctx := x.r.Context()
	err := x.failAttempt(fmt.Errorf("%w: %w", errRolledBack, cause))
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
	case x.ended:
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: notInTransaction, retryAfter: time.Second})
	case x.leftOpen && x.run.State() == retrysafe.StateRetryable:
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: notCommitted, retryAfter: time.Second})
	default: // nothing was committed, also if the handler has settled the execution itself
		x.g.refuse(x.w, x.r, x.run.Ref().Key, refusal{problem: x.broken(), status: http.StatusServiceUnavailable, retryAfter: time.Second})
	}
}

var (
	// errRolledBack: the transaction that held the answer did not commit.
	errRolledBack = errors.New("the transaction rolled back")
	// errNotCommitted: the handler returned, and the transaction of CompleteTx was open.
	errNotCommitted = errors.New("it returned without committing the transaction that it gave to CompleteTx; the transaction was rolled back")
	// errNoAnswer: the handler wrote neither a status nor a body.
	errNoAnswer = errors.New("it wrote neither a status nor a body")
	// errNoSuccess: the handler settled the execution as not executed or unknown, and
	// wrote a success.
	errNoSuccess = errors.New("it answered with a success after it had called Release or Quarantine, so its response is not sent")
	// errNothingWritten: CompleteTx was called before the response was written.
	errNothingWritten = errors.New("httpkey: CompleteTx was called before a status or a body was written, so it would store an empty response; write the response first")
	// errUnprovenFailure: an attempt with effects in_tx failed, and no transaction took
	// its answer.
	errUnprovenFailure = errors.New("it failed, and whether it has committed anything cannot be known, so the outcome is set aside as unknown")
)

// settle settles the execution by the status of the response.
func (x *exchange) settle(omitted bool) error {
	ctx := x.r.Context()
	switch x.g.meaning(x.status, x.g.policy.OnFailure) {
	case stored:
		return x.run.Complete(ctx, x.result(omitted))
	case notExecuted:
		return x.run.Release(ctx, statusError(x.status))
	default:
		err := x.run.Fail(ctx, statusError(x.status))
		if err == nil {
			x.logUnknown(statusError(x.status))
		}
		return err
	}
}

// logUnknown logs that the outcome of a failed attempt is unknown, if it is: from now on
// every retry is refused, until it is settled.
func (x *exchange) logUnknown(cause error) {
	switch {
	case x.run.State() != retrysafe.StateUnknown:
	case x.g.policy.Effects == retrysafe.EffectsInTx:
		x.g.logDefect(x.r, errUnprovenFailure, "use httpkey.TxHandler or Options.Tx, which roll back and know it; or call Execution.Release once the handler has rolled back")
	default:
		x.g.o.Logger.Warn("retrysafe: an attempt failed and may have been executed; its key is set aside as unknown until it is settled",
			"operation", x.g.operation(x.r), "scope", retrysafe.HashKey(x.run.Ref().Scope), "key", retrysafe.HashKey(x.run.Ref().Key), "cause", cause, "fix", "docs/recovery.md settles it; docs/semantics.md has what keeps a failure from being unknown")
	}
}

// statusError is the reason of an attempt that failed with a status.
type statusError int

func (s statusError) Error() string { return failreason.Answered(int(s)) }

// What a status means for the operation.
const (
	stored      = iota // it is the answer
	notExecuted        // the request was refused before anything happened
	failed             // the attempt failed; the effect mode says what that proves
)

// meaning returns what a final status means. One of [Options.NotExecuted], which a later
// attempt may overcome with the same request, is not stored. A bad gateway or a timeout never is,
// because the handler itself does not know the outcome.
func (g *Guard) meaning(status int, onFailure retrysafe.FailurePolicy) int {
	switch {
	case slices.Contains(g.o.NotExecuted, status):
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
		x.logBroken(cause)
	}
	var err error
	if !x.direct { // otherwise the outcome is stored already
		x.closeTx()
		if err = x.failAttempt(cause); err == nil {
			x.logUnknown(cause)
		}
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

// logBroken logs why a handler did not finish.
func (x *exchange) logBroken(cause error) {
	args := []any{"operation", x.g.operation(x.r), "error", cause}
	var p *panicError
	if errors.As(cause, &p) {
		args = append(args, "stack", string(p.stack))
	}
	x.g.o.Logger.Error("retrysafe: handler did not finish", args...)
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
	if errors.Is(err, retrysafe.ErrNotInTx) && !errors.Is(err, retrysafe.ErrLost) && !errors.Is(err, retrysafe.ErrUnsettled) {
		x.g.logDefect(x.r, retrysafe.ErrNotInTx, "use httpkey.TxHandler, or call httpkey.CompleteTx before the commit; if its effects are not all in the store's database, declare them keyed or unprotected")
		x.g.refuse(x.w, x.r, key, refusal{problem: notInTransaction, retryAfter: time.Second})
		return
	}
	if errors.Is(err, retrysafe.ErrPhases) && !errors.Is(err, retrysafe.ErrLost) && !errors.Is(err, retrysafe.ErrUnsettled) { // it was settled by what is proven, and has no answer
		x.g.refuse(x.w, x.r, key, refusal{problem: x.broken()})
		return
	}
	if errors.Is(err, storemove.ErrMoved) && !errors.Is(err, retrysafe.ErrLost) {
		x.g.logPending(x.r, key, err)
		x.refuseAbandoned()
		return
	}
	if !errors.Is(err, retrysafe.ErrLost) {
		x.g.logPending(x.r, key, err)
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
	case errors.Is(err, retrysafe.ErrNotFound): // a sweeper gave it up
		x.refuseAbandoned()
		return
	case errors.Is(err, retrysafe.ErrMismatch):
		err = &retrysafe.RefusedError{Err: retrysafe.ErrUnknown}
	case errors.Is(err, retrysafe.ErrUnavailable): // the request was executed, so its text would be wrong
		x.g.refuse(x.w, x.r, key, refusal{problem: outcomePending, retryAfter: time.Second})
		return
	}
	x.g.refuse(x.w, x.r, key, x.g.explain(x.r, key, err))
}

// refuseAbandoned answers for an attempt that ran and whose answer no store will have: its
// record was given up, or moved to another store as it was, in flight.
func (x *exchange) refuseAbandoned() {
	rec := x.run.Record()
	if rec.Effects.Repeatable() { // it may run again
		x.g.refuse(x.w, x.r, rec.Key, refusal{problem: attemptFailed, retryAfter: time.Second})
		return
	}
	x.g.refuse(x.w, x.r, rec.Key, x.g.explain(x.r, rec.Key, &retrysafe.RefusedError{Err: retrysafe.ErrUnknown}))
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
	switch {
	case x.run == nil: // in the transaction form the handler does not complete anything
		x.fault = errOwnsTx
		return x.fault
	case x.direct || x.fault != nil:
		x.undone = rolledBackOpen(ctx, tx)
		return cmp.Or(x.fault, errUnfenced)
	case x.status == 0 && !x.g.o.AllowEmpty:
		x.rolledBack = true
		x.undone = rolledBackOpen(ctx, tx)
		x.ended = !x.undone
		x.g.logDefect(x.r, errNothingWritten, "write the whole response before CompleteTx, or set Options.AllowEmpty")
		return errNothingWritten
	case x.status == 0:
		x.status = http.StatusOK
	}
	res := x.result(false)
	if err := x.run.CompleteTx(ctx, tx, res); err != nil {
		x.rolledBack = true
		switch {
		case errors.Is(err, retrysafe.ErrTxDone):
			x.ended = true
			x.g.logDefect(x.r, err, "call CompleteTx before the commit, as the last step of the transaction; or let httpkey.TxHandler do both")
		case errors.Is(err, retrysafe.ErrNotFound):
			x.g.logDefect(x.r, err, "begin the transaction in the handler, on the store's own database; if the effects are in another one, declare them keyed or unprotected")
		default:
			x.g.o.Logger.Warn("retrysafe: the response could not be stored in the handler's transaction, which was rolled back", "operation", x.g.operation(x.r), "error", err)
		}
		return err
	}
	x.header = x.header.Clone() // the handler may have kept the one it was given
	x.sealed, x.rolledBack, x.undone, x.taken, x.inTx = true, false, false, res, tx
	return nil
}
