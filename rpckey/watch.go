package rpckey

import (
	"context"

	codepb "google.golang.org/genproto/googleapis/rpc/code"

	"github.com/retrysafe/retrysafe"
)

// watch answers a call in observe mode: the handler always runs, in the caller's own
// context, as if there were no guard. Keys are recorded, so that calls are found that a
// guard would have refused or replayed.
func (g *Guard) watch(ctx context.Context, c *Call, next Next) Answer {
	run := g.watched(ctx, c)
	if run == nil {
		return g.pass(ctx, c, next)
	}
	defer run.Stop()
	back := false
	defer func() { // a panic goes on; the key is free again, as after any failure
		if !back {
			_ = run.Release(ctx, errGoexit)
		}
	}()
	a := g.pass(ctx, c, next)
	back = true
	var err error
	if g.meaning(&a) == MeaningAnswer {
		err = run.Complete(ctx, retrysafe.Result{Status: httpStatus(codepb.Code(a.Status.GetCode())), Omitted: true})
	} else {
		err = run.Release(ctx, reason(&a))
	}
	if err != nil {
		g.o.Logger.Warn("retrysafe: observed call was not recorded", "procedure", c.Procedure, "key", retrysafe.HashKey(run.Ref().Key), "error", err)
	}
	return a
}

// watched reserves the key of an observed call. If a guard would refuse the call, or
// replay it, that is reported, and there is no execution.
func (g *Guard) watched(ctx context.Context, c *Call) *retrysafe.Execution {
	call, re := g.intake(ctx, c)
	if re != nil {
		g.report(re.code, c.Procedure, call.Key, false)
		return nil
	}
	if call.Key == "" { // optional and absent, or guarded already
		return nil
	}
	run, out, err := g.engine.Begin(ctx, call)
	switch {
	case out != nil:
		g.report(noticeReplay, c.Procedure, call.Key, false)
	case err != nil:
		g.report(refusalOf(err).code, c.Procedure, call.Key, false)
	}
	return run
}

// pass runs the handler of a call that is not guarded, in a transaction if it asks for
// one.
func (g *Guard) pass(ctx context.Context, c *Call, next Next) Answer {
	if g.o.Tx != nil {
		return g.passTx(ctx, c, next)
	}
	return next(ctx, false)
}
