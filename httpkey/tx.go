package httpkey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// TxHandler returns a guarded handler whose effects and answer are one transaction and
// one commit, by [retrysafe.DoTx]: it begins the transaction, calls fn, and commits the
// response that fn has written together with fn's writes. Only then the client gets the
// response.
//
// Fn writes to the database in tx, and neither commits it nor rolls it back. It writes
// its response to w before it returns. The transaction is rolled back, nothing is
// stored, and a retry runs fn again, if fn returns an error, panics, writes a server
// error or one of [Options.NotExecuted], or writes nothing. A response of fn that is
// 400 or above is sent to the client in these cases too; otherwise the client gets a
// problem. Everything that fn does must be in tx: what it does elsewhere is not rolled
// back.
//
// The guard's policy applies, with the effects [retrysafe.EffectsInTx]; its Lapse and
// OnFailure do not apply. S is as a rule the engine's store. Requests that the guard
// lets pass, by their method or because they have no key and need none, run in a
// transaction too, and are not stored.
func TxHandler[T any](g *Guard, s retrysafe.TxStore[T], fn func(w http.ResponseWriter, r *http.Request, tx T) error) (http.Handler, error) {
	switch {
	case g == nil || fn == nil || isNil(s):
		return nil, errors.New("httpkey: TxHandler needs a guard, a store that begins transactions and a function")
	case g.o.Observe:
		return nil, errors.New("httpkey: TxHandler: in observe mode handlers run as if there were no guard, and this one needs the guard's transaction; observe the route with a plain handler")
	case g.o.Async:
		return nil, errors.New("httpkey: TxHandler: an Async guard stores requests for a Worker; give the worker a handler that uses CompleteTx")
	case g.o.Stream == StreamThrough:
		return nil, errors.New("httpkey: TxHandler: a streamed response is sent before its transaction is committed; leave Stream at StreamHold")
	}
	n := *g
	var err error
	if n.engine, err = g.engine.With(retrysafe.Policy{Effects: retrysafe.EffectsInTx}); err != nil {
		return nil, fmt.Errorf("httpkey: TxHandler: %w", err)
	}
	n.policy = n.engine.Policy()
	run := func(ctx context.Context, c *retrysafe.Call, x *exchange, body []byte) (retrysafe.Outcome, error) {
		return retrysafe.DoTx(ctx, n.engine, s, *c, func(ctx context.Context, tx T) (retrysafe.Result, error) {
			return x.runInTx(ctx, body, func(r *http.Request) error { return fn(x, r, tx) })
		})
	}
	plain := func(x *exchange) error {
		return plainTx(x, s, func(tx T) error { return fn(x, x.r, tx) })
	}
	return &txHandler{&n, run, plain}, nil
}

// isNil reports whether there is no store: also a nil pointer in the interface is none.
func isNil(s any) bool {
	v := reflect.ValueOf(s)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// txHandler is a handler in the transaction form.
type txHandler struct {
	*Guard
	run   func(context.Context, *retrysafe.Call, *exchange, []byte) (retrysafe.Outcome, error)
	plain func(*exchange) error // without a key
}

func (h *txHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(auditKey{}) != nil {
		h.answerAudit(w, r)
		return
	}
	if !slices.Contains(h.o.Methods, r.Method) {
		if h.overrides(r) {
			h.refuse(w, r, "", refusal{problem: methodOverride})
			h.reportDisposition(r, retrysafe.Ref{}, methodOverride.code)
			return
		}
		h.serve(w, r, retrysafe.Ref{}, h.plain)
		return
	}
	s := h.pool.Get()
	defer h.pool.Put(s)
	c, body, re := h.call(r, s)
	if re != nil {
		h.refuse(w, r, c.Key, *re)
		h.reportDisposition(r, c.Ref, re.code)
		return
	}
	if c.Key == "" { // optional and absent, or guarded already
		h.serve(w, r, c.Ref, h.plain)
		h.reportDisposition(r, c.Ref, "")
		return
	}
	s.body = nil // the handler may keep it
	h.serve(w, r, c.Ref, func(x *exchange) error { return h.runKeyed(x, &c, body) })
}

// errReplayed: the client has got a stored answer.
var errReplayed = errors.New("replayed")

// runKeyed runs a request under its key, within the tenant's limits.
func (h *txHandler) runKeyed(x *exchange, c *retrysafe.Call, body []byte) error {
	ctx := x.r.Context()
	start := func() (*retrysafe.Outcome, bool, error) {
		out, err := h.run(ctx, c, x, body)
		return &out, err == nil && !out.Replayed && out.Attempt == 1, err
	}
	var out *retrysafe.Outcome
	var err error
	if h.unlimited() {
		out, _, err = start()
	} else {
		out, err = h.limited(ctx, c, false, start)
	}
	switch {
	case err != nil:
		return err
	case out.Replayed:
		h.replay(x.w, x.r, out)
		h.reportDisposition(x.r, c.Ref, DispositionReplay)
		return errReplayed
	}
	x.until = out.Expires
	return nil
}

// serve calls run, which runs the handler in a transaction, and answers by its error. A
// handler that ends its goroutine was rolled back.
func (h *txHandler) serve(w http.ResponseWriter, r *http.Request, ref retrysafe.Ref, run func(*exchange) error) {
	x := &exchange{g: h.Guard, w: w, r: r}
	back := false
	defer func() {
		if !back {
			h.o.Logger.Error("retrysafe: handler did not finish", "operation", h.operation(r), "error", errGoexit)
			h.refuse(w, r, ref.Key, refusal{problem: attemptFailed, retryAfter: time.Second})
			_ = http.NewResponseController(w).Flush() // the goroutine ends after this, and the server drops what it has not sent
		}
	}()
	err := run(x)
	back = true
	switch {
	case errors.Is(err, errReplayed):
		return
	case err == nil:
		x.send()
	default:
		h.answerFailed(x, ref, err)
	}
	if x.ran && ref.Key != "" {
		h.reportDisposition(r, ref, DispositionRan)
	}
}

// answerFailed answers for a request that was not committed, as far as that is known.
func (h *txHandler) answerFailed(x *exchange, ref retrysafe.Ref, err error) {
	refuse := func(p *problem) { h.refuse(x.w, x.r, ref.Key, refusal{problem: p, retryAfter: time.Second}) }
	var refused *retrysafe.RefusedError
	var busy *busyError
	var panicked *panicError
	var status statusError
	switch {
	case errors.As(err, &refused), errors.As(err, &busy), !x.ran:
		re := h.explain(x.r, ref.Key, err)
		h.refuse(x.w, x.r, ref.Key, re)
		if !x.ran {
			h.reportDisposition(x.r, ref, re.code)
		}
	case errors.Is(err, retrysafe.ErrUnsettled) && !errors.Is(err, retrysafe.ErrTxDone):
		refuse(outcomePending)
	case errors.Is(err, retrysafe.ErrTxDone):
		h.logDefect(x.r, err, "return nil to commit the transaction, or an error to roll it back; TxHandler does both")
		refuse(notInTransaction)
	case errors.Is(err, retrysafe.ErrLost):
		refuse(outcomeUnknown)
	case errors.As(err, &panicked):
		h.answerPanic(x, ref, panicked)
	case errors.Is(err, errNoAnswer):
		h.logDefect(x.r, err, "write a status or a body on every path, or return an error; or set Options.AllowEmpty")
		refuse(noAnswer)
	case errors.As(err, &status), x.status >= 400 && x.fault == nil:
		x.send()
	default:
		h.o.Logger.Error("retrysafe: the attempt was rolled back", "operation", h.operation(x.r), "error", err)
		refuse(attemptFailed)
	}
}

// answerPanic answers for a handler that panicked.
func (h *txHandler) answerPanic(x *exchange, ref retrysafe.Ref, p *panicError) {
	abort := p.value == http.ErrAbortHandler //nolint:errorlint // net/http compares the same way
	if !abort {
		h.o.Logger.Error("retrysafe: handler did not finish", "operation", h.operation(x.r), "error", p, "stack", string(p.stack))
	}
	if abort || h.o.Repanic {
		panic(p.value) //nolint:forbidigo // the handler's own panic goes on
	}
	h.refuse(x.w, x.r, ref.Key, refusal{problem: attemptFailed, retryAfter: time.Second})
}

// runInTx calls the handler, and returns the response to be committed with its writes.
// An error rolls them back.
func (x *exchange) runInTx(ctx context.Context, body []byte, fn func(*http.Request) error) (retrysafe.Result, error) {
	x.ran = true
	seen := x.withBody(ctx, x.r, body)
	err := callHandler(func() error { return fn(seen) })
	if seen.MultipartForm != nil { // the server removes the files of its own request, not of this copy
		_ = seen.MultipartForm.RemoveAll()
	}
	if err == nil {
		err = x.commitable()
	}
	if err != nil {
		return retrysafe.Result{}, err
	}
	return x.result(false), nil
}

// commitable returns nil if the handler's response is an answer to be committed.
func (x *exchange) commitable() error {
	switch {
	case x.fault != nil:
		return x.fault
	case x.status == 0 && !x.g.o.AllowEmpty:
		return errNoAnswer
	case x.status == 0:
		x.status = http.StatusOK
	case x.g.meaning(x.status, retrysafe.FailureByProof) != stored:
		return statusError(x.status)
	}
	return nil
}

// plainTx runs a handler in a transaction without a key, and holds its response until
// the commit.
func plainTx[T any](x *exchange, s retrysafe.TxStore[T], fn func(T) error) error {
	ctx := x.r.Context()
	tx, own, err := s.BeginTx(ctx)
	if err != nil {
		return &retrysafe.RefusedError{Err: fmt.Errorf("%w: %w", retrysafe.ErrUnavailable, err), RetryAfter: time.Second}
	}
	committed := false
	defer func() { // also if the handler ends its goroutine
		if !committed {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	x.ran = true
	if err := callHandler(func() error { return fn(own) }); err != nil {
		return err
	}
	if err := x.commitable(); err != nil {
		return err
	}
	if err := tx.Commit(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// callHandler calls fn and returns its panic as an error.
func callHandler(fn func() error) (err error) {
	back := false
	defer func() {
		if back {
			return
		}
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	err = fn()
	back = true
	return err
}
