package rpckey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/txrun"
)

// A TxRunner runs handlers in transactions of a store. [InTx] returns one.
type TxRunner interface{ txrun.Runner }

// InTx returns what [Options.Tx] takes: handlers run in transactions of this store. As a
// rule it is the engine's own store.
func InTx[T any](s retrysafe.TxStore[T]) TxRunner { return txrun.In(s) }

// Tx returns the transaction that a handler runs in, by [Options.Tx]. The handler
// writes in it, and neither commits it nor rolls it back. Without one it returns an
// error that says what to do.
func Tx[T any](ctx context.Context) (T, error) {
	tx, ok := txrun.Tx[T](ctx)
	if !ok {
		return tx, fmt.Errorf("rpckey: the handler runs in no transaction of type %s; set Options.Tx to rpckey.InTx of a store that has such transactions", reflect.TypeFor[T]())
	}
	return tx, nil
}

// errAnswered: the handler has answered with an error, so its transaction is rolled
// back.
var errAnswered = errors.New("the handler answered with an error")

// unaryTx answers a call whose reservation, effects and answer are one commit.
func (g *Guard) unaryTx(ctx context.Context, c *Call, m *method, call retrysafe.Call, next Next) Answer {
	refuse := func(re *refusal) Answer { return g.refuse(c.Procedure, call.Key, re) }
	var a Answer
	var res retrysafe.Result
	var broken error // why the handler gave no answer
	ran := false
	out, err := g.o.Tx.DoTx(ctx, g.engine, call, func(ctx context.Context) (_ retrysafe.Result, err error) {
		ran = true
		if a, err = callHandler(ctx, next, true); err == nil {
			res, err = g.result(&a)
		}
		if broken = err; err == nil && a.Status != nil {
			err = errAnswered
		}
		return res, err
	})
	switch {
	case err == nil && out.Replayed:
		return g.replay(c.Procedure, m.output(), call.Key, &out)
	case err == nil:
		return own(a, out.Expires)
	case !ran:
		return refuse(g.explain(c.Procedure, call.Key, err))
	case errors.Is(err, retrysafe.ErrUnsettled):
		return refuse(&refusal{problem: outcomePending, retryAfter: time.Second})
	case errors.Is(err, errAnswered) && g.meaning(&a) == MeaningAnswer:
		return g.storeError(ctx, c, m, call, a, res)
	case errors.Is(err, errAnswered): // it was rolled back, and the key is free
		return a
	case errors.Is(err, retrysafe.ErrPolicy) && ran && broken == nil: // it is committed, and a retry gets it
		g.o.Logger.Error("retrysafe: give rpckey.InTx the store that the guard's engine was made with", "procedure", c.Procedure, "key", retrysafe.HashKey(call.Key), "error", err)
		return refuse(&refusal{problem: outcomePending, retryAfter: time.Second})
	}
	g.logBroken(c.Procedure, call.Key, err)
	if p := asPanic(broken); p != nil && (g.o.Repanic || p.aborts()) {
		panic(p.value) //nolint:forbidigo // the handler's own panic goes on
	}
	switch {
	case broken != nil:
		return refuse(&refusal{problem: attemptFailed})
	case retrysafe.IsNotExecuted(err): // the commit failed
		return refuse(&refusal{problem: attemptFailed, status: codepb.Code_UNAVAILABLE, retryAfter: time.Second})
	default:
		return refuse(&refusal{problem: attemptUnknown})
	}
}

// storeError stores an error that is the answer of a call whose transaction was rolled
// back. If another call with this key came first, its record counts.
func (g *Guard) storeError(ctx context.Context, c *Call, m *method, call retrysafe.Call, a Answer, res retrysafe.Result) Answer {
	run, out, err := g.engine.Begin(context.WithoutCancel(ctx), call)
	switch {
	case out != nil:
		return g.replay(c.Procedure, m.output(), call.Key, out)
	case err != nil:
		return g.refuse(c.Procedure, call.Key, g.explain(c.Procedure, call.Key, err))
	}
	defer run.Stop()
	x := &exchange{g: g, ctx: ctx, c: c, output: m.output(), run: run}
	if err := run.Complete(ctx, res); err != nil {
		return x.refuseUnsettled(err)
	}
	return x.own(a)
}

// passTx runs the handler of a call without a key in a transaction, because it asks for
// one.
func (g *Guard) passTx(ctx context.Context, c *Call, next Next) Answer {
	var a Answer
	err := g.o.Tx.PlainTx(ctx, func(ctx context.Context) error {
		if a = next(ctx, false); a.Status != nil {
			return errAnswered
		}
		return nil
	})
	switch {
	case err == nil || errors.Is(err, errAnswered):
		return a
	case a.Message == nil:
		return g.refuse(c.Procedure, "", g.explain(c.Procedure, "", err))
	}
	g.logBroken(c.Procedure, "", err)
	return g.refuse(c.Procedure, "", &refusal{problem: attemptUnknown})
}

// CompleteTx stores the response of a call in the handler's own transaction, so that
// effects and answer commit together, where the handler cannot run in one of
// [Options.Tx]. Call it as the last step before the commit, and return the same
// response. On an error the transaction is rolled back already. If the transaction does
// not commit, the caller gets a status that says so, whatever the handler returns.
//
// Response metadata that was set through the context (grpc.SetHeader and
// grpc.SetTrailer) is stored with it. For that of a connect.Response there is
// connectkey.CompleteTx. Outside a guard CompleteTx does nothing, so that handlers stay
// testable.
func CompleteTx(ctx context.Context, tx retrysafe.Tx, response proto.Message) error {
	return CompleteAnswerTx(ctx, tx, Answer{Message: response})
}

// CompleteAnswerTx is [CompleteTx] for a transport whose responses have metadata of
// their own.
func CompleteAnswerTx(ctx context.Context, tx retrysafe.Tx, a Answer) error {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil
	}
	if a.Status == nil && (a.Message == nil || !a.Message.ProtoReflect().IsValid()) {
		return x.rollBack(ctx, tx, errNoResponse)
	}
	if x.c.Recorded != nil {
		header, trailer := x.c.Recorded()
		a.Header, a.Trailer = joined(header, a.Header), joined(trailer, a.Trailer)
	}
	res, err := x.g.result(&a)
	if err != nil {
		return x.rollBack(ctx, tx, fmt.Errorf("rpckey: encode response: %w", err))
	}
	if err := x.run.CompleteTx(ctx, tx, res); err != nil {
		x.rolledBack = true
		return err
	}
	x.completed, x.rolledBack, x.undone = tx, false, false
	return nil
}

// rollBack rolls back the handler's transaction, which has no answer to store.
func (x *exchange) rollBack(ctx context.Context, tx retrysafe.Tx, why error) error {
	x.rolledBack = true
	err := tx.Rollback(context.WithoutCancel(ctx))
	x.undone = err == nil
	return errors.Join(why, err)
}

var errNoResponse = errors.New("rpckey: CompleteTx was given no response; pass the one that the handler returns")

// joined returns the metadata of both.
func joined(a, b map[string][]string) map[string][]string {
	out := maps.Clone(a)
	for name, values := range b {
		out = with(out, name, slices.Concat(out[name], values)...)
	}
	return out
}
