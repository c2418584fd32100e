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
	"github.com/retrysafe/retrysafe/internal/txrun"
)

// A TxRunner runs handlers in transactions of a store. [InTx] returns one.
type TxRunner interface{ txrun.Runner }

// InTx returns what [Options.Tx] takes: handlers run in transactions of this store. As a
// rule it is the engine's own store.
func InTx[T any](s retrysafe.TxStore[T]) TxRunner { return txrun.In(s) }

// Tx returns the transaction that a handler runs in, by [Options.Tx] or [TxHandler], from
// the context of its request. The handler writes in it, and neither commits it nor rolls
// it back. Without one Tx returns an error that says what to do.
func Tx[T any](ctx context.Context) (T, error) {
	tx, ok := txrun.Tx[T](ctx)
	if !ok {
		return tx, fmt.Errorf("httpkey: the handler runs in no transaction of type %s; set Options.Tx to httpkey.InTx of a store that has such transactions", reflect.TypeFor[T]())
	}
	return tx, nil
}

// TxHandler returns a guarded handler whose effects and answer are one transaction and
// one commit, by [retrysafe.DoTx]: it begins the transaction, calls fn, and commits the
// response that fn has written together with fn's writes. Only then the client gets the
// response. Handlers of a framework, which get no tx, find it by [Options.Tx].
//
// Fn writes to the database in tx, and neither commits it nor rolls it back. It writes
// its response to w before it returns. How fn ends decides about both:
//
//   - It returns nil after a response below 500: its writes are committed with the
//     response, also with a 4xx. Retries get the response.
//   - It returns an error after a response of 4xx: its writes are rolled back, and the
//     response is stored. Retries get the response.
//   - It writes a server error or one of [Options.NotExecuted]: its writes are rolled
//     back, nothing is stored, and a retry runs fn again. The client gets the response.
//   - It panics, writes nothing, or returns an error without such a response: the same,
//     and the client gets a problem.
//
// Everything that fn does must be in tx: what it does elsewhere is not rolled back.
//
// The guard's policy applies, with the effects [retrysafe.EffectsInTx]; its Lapse and
// OnFailure do not apply. S is as a rule the engine's store; one that is not is reported
// by the first request. Requests that the guard
// lets pass, by their method or because they have no key and need none, run in a
// transaction too, and are not stored.
func TxHandler[T any](g *Guard, s retrysafe.TxStore[T], fn func(w http.ResponseWriter, r *http.Request, tx T) error) (http.Handler, error) {
	runner := txrun.In(s)
	if g == nil || fn == nil || !runner.Valid() {
		return nil, errors.New("httpkey: TxHandler needs a guard, a store that begins transactions and a function")
	}
	n := *g
	n.o.Tx = runner
	if err := n.o.checkTx(); err != nil {
		return nil, fmt.Errorf("httpkey: TxHandler: %w", err)
	}
	var err error
	if n.engine, err = g.engine.With(retrysafe.Policy{Effects: retrysafe.EffectsInTx}); err != nil {
		return nil, fmt.Errorf("httpkey: TxHandler: %w", err)
	}
	n.policy = n.engine.Policy()
	return &txHandler{&n, func(x *exchange, r *http.Request) error {
		tx, _ := txrun.Tx[T](r.Context())
		return fn(x, r, tx)
	}}, nil
}

// checkTx checks the options of a guard whose handlers run in transactions.
func (o *Options) checkTx() error {
	switch {
	case o.Tx == nil:
		return nil
	case !o.Tx.Valid():
		return errors.New("InTx needs a store that begins transactions")
	case o.Observe:
		return errors.New("in observe mode handlers run as if there were no guard, and this one needs the guard's transaction; observe the route with a plain handler")
	case o.Async:
		return errors.New("an Async guard stores requests for a Worker; give the worker a handler that uses CompleteTx")
	case o.Stream == StreamThrough:
		return errors.New("a streamed response is sent before its transaction is committed; leave Stream at StreamHold")
	}
	return nil
}

// errEndedInError: the handler's framework says that it ended with an error.
var errEndedInError = errors.New("the handler ended with an error")

// RollBack says that a handler with [Options.Tx] ended with an error, although it may
// have written a response: its writes are not committed. Adapters of frameworks whose
// handlers return errors call it.
func (x *exchange) RollBack() { x.failed = true }

// handlerInTx returns next as a handler in the transaction form.
func (g *Guard) handlerInTx(next http.Handler) *txHandler {
	return &txHandler{g, func(x *exchange, r *http.Request) error {
		next.ServeHTTP(x, r)
		if x.failed {
			return errEndedInError
		}
		return nil
	}}
}

// txHandler is a handler in the transaction form.
type txHandler struct {
	*Guard
	next func(*exchange, *http.Request) error
}

// plain runs the handler of a request without a key in a transaction, and holds its
// response until the commit.
func (h *txHandler) plain(x *exchange) error {
	return h.o.Tx.PlainTx(x.r.Context(), func(ctx context.Context) error {
		x.ran = true
		if err := x.callIn(x.r.WithContext(ctx), h.next); err != nil {
			return err
		}
		return x.commitable()
	})
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
	defer h.release(s)
	c, body, re := h.call(r, s)
	if re != nil {
		h.refuse(w, r, c.Key, *re)
		h.reportDisposition(r, c.Ref, re.code)
		return
	}
	if c.Key == "" { // optional and absent, or guarded already
		if run, ok := retrysafe.FromContext(r.Context()); ok && r.Header.Get(h.o.Header) != "" {
			h.refuseNested(w, r, run)
			return
		}
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
		out, err := h.o.Tx.DoTx(ctx, h.engine, *c, func(ctx context.Context) (retrysafe.Result, error) {
			return x.runInTx(ctx, body, h.next)
		})
		return &out, err == nil && !out.Replayed && out.Attempt == 1, err
	}
	var out *retrysafe.Outcome
	var err error
	if h.unlimited() {
		out, _, err = start()
	} else {
		out, err = h.limited(ctx, c, false, start)
	}
	if err != nil && x.errorIsAnswer(err) {
		out, err = h.storeError(ctx, c, x)
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

// errorIsAnswer reports whether the handler, which has ended with err, has written an
// error that is its answer: its transaction was rolled back.
func (x *exchange) errorIsAnswer(err error) bool {
	return x.declined && !errors.Is(err, retrysafe.ErrTxDone)
}

// storeError stores an error response whose transaction was rolled back. If another
// request with this key came first, its record counts.
func (h *txHandler) storeError(ctx context.Context, c *retrysafe.Call, x *exchange) (*retrysafe.Outcome, error) {
	out, err := h.engine.Do(context.WithoutCancel(ctx), *c, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return x.result(false), nil
	})
	return &out, err
}

// refuseNested answers for a guard around this handler, which has reserved the key.
func (h *txHandler) refuseNested(w http.ResponseWriter, r *http.Request, outer *retrysafe.Execution) {
	h.logDefect(r, errNested, "mount the handler without another guard around it: it is guarded already")
	_ = outer.Release(r.Context(), errNested) // nothing has run
	h.refuse(w, r, outer.Ref().Key, refusal{problem: guardedTwice, retryAfter: time.Minute})
}

// errNested: a guard is around a handler in the transaction form.
var errNested = errors.New("httpkey: another guard around a handler in the transaction form has reserved the key outside the transaction")

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
	var own *handlerError
	var refused *retrysafe.RefusedError
	var panicked *panicError
	var status statusError
	switch {
	case errors.As(err, &own) && !errors.Is(err, retrysafe.ErrTxDone): // rolled back; an error of the engine in it is about another key
		if x.status >= 400 && x.fault == nil {
			x.send()
			return
		}
		h.logRolledBack(x.r, err)
		refuse(attemptFailed)
	case errors.As(err, &refused), !x.ran:
		re := h.explain(x.r, ref.Key, err)
		h.refuse(x.w, x.r, ref.Key, re)
		if !x.ran {
			h.reportDisposition(x.r, ref, re.code)
		}
	case errors.Is(err, retrysafe.ErrUnsettled) && !errors.Is(err, retrysafe.ErrTxDone):
		h.logPending(x.r, ref.Key, err)
		refuse(outcomePending)
	case errors.Is(err, retrysafe.ErrTxDone):
		h.logDefect(x.r, err, "return nil to commit the transaction, or an error to roll it back; TxHandler does both")
		refuse(notInTransaction)
	case errors.Is(err, retrysafe.ErrPolicy): // it is committed, and a retry gets it
		h.logDefect(x.r, err, "give TxHandler the store that the guard's engine was made with")
		refuse(outcomePending)
	case errors.Is(err, retrysafe.ErrLost):
		refuse(outcomeUnknown)
	case errors.As(err, &panicked):
		h.answerPanic(x, ref, panicked)
	case errors.Is(err, errNoAnswer):
		h.logDefect(x.r, err, "write a status or a body on every path, or return an error; or set Options.AllowEmpty")
		refuse(noAnswer)
	case errors.As(err, &status):
		x.send()
	default: // also for a client error: its commit has failed
		h.logRolledBack(x.r, err)
		refuse(attemptFailed)
	}
}

func (h *txHandler) logRolledBack(r *http.Request, err error) {
	h.o.Logger.Error("retrysafe: the attempt was rolled back", "operation", h.operation(r), "error", err)
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
func (x *exchange) runInTx(ctx context.Context, body []byte, next func(*exchange, *http.Request) error) (retrysafe.Result, error) {
	x.ran = true
	err := x.callIn(x.withBody(ctx, x.r, body), next)
	var own *handlerError
	switch {
	case err == nil:
		err = x.commitable()
	case errors.As(err, &own):
		x.declined = x.status >= 400 && x.commitable() == nil
	}
	if err != nil {
		return retrysafe.Result{}, err
	}
	return x.result(false), nil
}

// handlerError is an error that a handler has returned.
type handlerError struct{ error }

func (e *handlerError) Unwrap() error { return e.error }

// callIn calls the handler with its copy of the request, and returns its error, or its panic
// as one.
func (x *exchange) callIn(seen *http.Request, next func(*exchange, *http.Request) error) error {
	err := callHandler(func() error {
		if err := next(x, seen); err != nil {
			return &handlerError{err}
		}
		return nil
	})
	if seen.MultipartForm != nil { // the server removes the files of its own request, not of this copy
		_ = seen.MultipartForm.RemoveAll()
	}
	return err
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
