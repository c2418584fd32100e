package rpckey_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// tell sends a call through a guard, without a transport, and returns its answer and the
// code by which it was refused, if it was.
func tell(t *testing.T, e *retrysafe.Engine, o rpckey.Options, h func(context.Context) rpckey.Answer) (a rpckey.Answer, code string) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Report = func(n rpckey.Notice) { code = n.Code }
	g, err := rpckey.New(e, acme, &o)
	must(t, err)
	a = g.Unary(t.Context(), &rpckey.Call{
		Procedure: charge, Message: &payv1.ChargeRequest{}, Metadata: func(string) []string { return []string{key} },
	}, func(ctx context.Context, _ bool) rpckey.Answer { return h(ctx) })
	return a, code
}

// unsent is a response that has no encoding.
var unsent = &payv1.ChargeResponse{ChargeId: "\xff"}

// A call whose answer did not commit is settled by what is proven of its transaction, and
// its caller is told that. No transaction that CompleteTx was given stays open.
func TestCallWhoseTransactionIsItsOwn(t *testing.T) {
	t.Parallel()
	ok := rpckey.Answer{Message: &payv1.ChargeResponse{ChargeId: "ch_1"}}
	failed := rpckey.Answer{Status: &statuspb.Status{Code: int32(codepb.Code_INTERNAL), Message: "a defect"}, Err: errors.New("a defect")}
	no := rpckey.Answer{Status: &statuspb.Status{Code: int32(codepb.Code_FAILED_PRECONDITION), Message: "no money"}}
	completes := func(a rpckey.Answer) func(context.Context, *memstore.Tx) rpckey.Answer {
		return func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			if err := rpckey.CompleteAnswerTx(ctx, tx, a); err == nil {
				t.Errorf("%+v was completed", a)
			}
			return failed
		}
	}
	for name, c := range map[string]struct {
		effects retrysafe.Effects
		handler func(context.Context, *memstore.Tx) rpckey.Answer
		code    string
		state   retrysafe.State
	}{
		"a status is committed": {retrysafe.EffectsUnprotected, func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			if err := errors.Join(rpckey.CompleteAnswerTx(ctx, tx, no), tx.Commit(ctx)); err != nil {
				t.Error(err)
			}
			return no
		}, "", retrysafe.StateCompleted},
		"given nothing": {retrysafe.EffectsUnprotected, completes(rpckey.Answer{}), "attempt-failed", retrysafe.StateRetryable},
		"given no message": {retrysafe.EffectsUnprotected, func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			if err := rpckey.CompleteTx(ctx, tx, (*payv1.ChargeResponse)(nil)); err == nil {
				t.Error("nothing was completed")
			}
			return failed
		}, "attempt-failed", retrysafe.StateRetryable},
		"given what has no encoding": {retrysafe.EffectsUnprotected, completes(rpckey.Answer{Message: unsent}), "attempt-failed", retrysafe.StateRetryable},
		"rolled back by the handler, which may have done more": {retrysafe.EffectsUnprotected, func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			if err := errors.Join(rpckey.CompleteAnswerTx(ctx, tx, ok), tx.Rollback(ctx)); err != nil {
				t.Error(err)
			}
			return failed
		}, "attempt-unknown", retrysafe.StateUnknown},
		"given to the execution itself, and left open": {retrysafe.EffectsInTx, func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			x, _ := retrysafe.FromContext(ctx)
			if err := errors.Join(x.CompleteTx(ctx, tx, retrysafe.Result{Status: 200}), tx.Rollback(ctx)); err != nil {
				t.Error(err)
			}
			return ok
		}, "attempt-failed", retrysafe.StateRetryable},
		"left open by a panic": {retrysafe.EffectsInTx, func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			if err := rpckey.CompleteAnswerTx(ctx, tx, ok); err != nil {
				t.Error(err)
			}
			panic("a defect")
		}, "attempt-failed", retrysafe.StateRetryable},
		"handed over to a message": {retrysafe.EffectsKeyed, func(ctx context.Context, tx *memstore.Tx) rpckey.Answer {
			x, _ := retrysafe.FromContext(ctx)
			if _, err := x.HandOver(ctx, tx, time.Hour); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
			return ok
		}, "in-flight", retrysafe.StateInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New(nil)
			var tx *memstore.Tx
			a, code := tell(t, engine(t, s), rpckey.Options{Policy: &retrysafe.Policy{Effects: c.effects}}, func(ctx context.Context) (a rpckey.Answer) {
				var err error
				tx, err = s.Begin(context.WithoutCancel(ctx))
				must(t, err)
				return c.handler(ctx, tx)
			})
			if code != c.code || code == "" && a.Status.GetMessage() != no.Status.GetMessage() {
				t.Errorf("the caller gets %q: %v, want %q", code, a.Status, c.code)
			}
			if err := tx.Commit(t.Context()); !errors.Is(err, retrysafe.ErrTxDone) {
				t.Errorf("the transaction is still open: %v", err)
			}
			r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
			if err != nil || r.State != c.state {
				t.Errorf("the record is %s, %v, want %s", r.State, err, c.state)
			}
		})
	}
}

// Outside a guard CompleteTx does nothing, so that handlers stay testable.
func TestCompleteTxOutsideAGuard(t *testing.T) {
	t.Parallel()
	tx, err := memstore.New(nil).Begin(t.Context())
	must(t, err)
	must(t, rpckey.CompleteTx(t.Context(), tx, &payv1.ChargeResponse{}))
	must(t, tx.Commit(t.Context()))
}

// A response that has no encoding is no answer, and an operator finds why. What an attempt
// has failed with is in its record.
func TestWhyAnAttemptFailed(t *testing.T) {
	t.Parallel()
	for why, a := range map[string]rpckey.Answer{
		"encode response":               {Message: unsent},
		"the bank has said this":        {Status: &statuspb.Status{Code: int32(codepb.Code_INTERNAL)}, Err: errors.New("the bank has said this")},
		"the handler answered INTERNAL": {Status: &statuspb.Status{Code: int32(codepb.Code_INTERNAL)}},
	} {
		s := memstore.New(nil)
		_, code := tell(t, engine(t, s), rpckey.Options{}, func(context.Context) rpckey.Answer { return a })
		if want := a.Status == nil; want != (code == "attempt-unknown") {
			t.Errorf("%s: the caller gets %q", why, code)
		}
		r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
		if err != nil || r.State != retrysafe.StateUnknown || !strings.Contains(r.Reason, why) {
			t.Errorf("%s: the record is %s, %q, %v", why, r.State, r.Reason, err)
		}
	}
}

// A call that has succeeded is no failure in the log.
func TestSuccessIsNotLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	a, code := tell(t, engine(t, memstore.New(nil)), rpckey.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))},
		func(context.Context) rpckey.Answer { return rpckey.Answer{Message: &payv1.ChargeResponse{}} })
	if a.Status != nil || code != "" || log.Len() > 0 {
		t.Errorf("the caller gets %q, and the log says %s", code, log.String())
	}
}

// While the store does not confirm how an attempt was settled that has panicked, its caller
// is not told either way.
func TestPanicWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	s := faultstore.New(memstore.New(nil))
	e, err := retrysafe.New(s, &retrysafe.Options{SettleTimeout: time.Millisecond})
	must(t, err)
	_, code := tell(t, e, rpckey.Options{}, func(context.Context) rpckey.Answer {
		s.Plan(faultstore.FailAll(faultstore.LoseRequest))
		panic("a defect")
	})
	if code != "outcome-pending" {
		t.Errorf("the caller gets %q", code)
	}
	s.Plan(nil)
}

// An attempt that has lost its record does not tell its caller that nothing was executed:
// neither when the record is gone, nor when the store does not answer then.
func TestLostRecordThatCannotBeShown(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		mem := memstore.New(nil)
		s := faultstore.New(mem)
		_, code := tell(t, engine(t, s), rpckey.Options{}, func(ctx context.Context) rpckey.Answer {
			x, _ := retrysafe.FromContext(ctx)
			r, err := mem.Load(ctx, x.Ref())
			must(t, err)
			w := r.Update()
			w.Owner, w.Overwrite, w.Attempt, w.Term = retrysafe.Owner{7}, true, w.Attempt+1, time.Hour
			if gone {
				w.State, w.Term = retrysafe.StateRetryable, 0
			}
			_, err = mem.Swap(ctx, w)
			must(t, err)
			for n := 0; gone && n == 0; {
				n, err = mem.Purge(ctx, 1)
				must(t, err)
			}
			s.Plan(func(step faultstore.Step) faultstore.Fault {
				if step.Op == faultstore.Load && !gone {
					return faultstore.LoseRequest
				}
				return faultstore.None
			})
			return rpckey.Answer{Message: &payv1.ChargeResponse{}}
		})
		if want := map[bool]string{false: "outcome-pending", true: "outcome-unknown"}[gone]; code != want {
			t.Errorf("the record is gone: %t, and the caller gets %q, want %q", gone, code, want)
		}
	}
}

// A runner ends its transactions as a test says.
type runner struct {
	rpckey.TxRunner
	end func(error) error
}

func (r runner) DoTx(ctx context.Context, e *retrysafe.Engine, c retrysafe.Call, fn func(context.Context) (retrysafe.Result, error)) (retrysafe.Outcome, error) {
	out, err := r.TxRunner.DoTx(ctx, e, c, fn)
	return out, r.end(err)
}

// If the transaction of a call does not commit, its caller is told what is known of it.
func TestInTxWhoseCommitFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		code   string
		status codepb.Code
	}{
		{retrysafe.NotExecuted(errors.New("a deadlock")), "attempt-failed", codepb.Code_UNAVAILABLE},
		{retrysafe.ErrUnsettled, "outcome-pending", codepb.Code_UNAVAILABLE},
		{errors.New("the reply was lost"), "attempt-unknown", codepb.Code_UNKNOWN},
	} {
		s := memstore.New(nil)
		a, code := tell(t, engine(t, s), rpckey.Options{Tx: runner{rpckey.InTx(s), func(error) error { return c.err }}}, func(context.Context) rpckey.Answer {
			return rpckey.Answer{Message: &payv1.ChargeResponse{}}
		})
		if code != c.code || codepb.Code(a.Status.GetCode()) != c.status {
			t.Errorf("%v: the caller gets %s %q, want %s %q", c.err, codepb.Code(a.Status.GetCode()), code, c.status, c.code)
		}
	}
}

// An error that is the answer of a call is stored after its transaction was rolled back. If
// another call has its answer stored by then, that one counts.
func TestErrorAfterAnotherCallsAnswer(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	e := engine(t, s)
	first := func(err error) error {
		a, code := tell(t, e, rpckey.Options{}, func(context.Context) rpckey.Answer {
			return rpckey.Answer{Message: &payv1.ChargeResponse{ChargeId: "ch_1"}}
		})
		if a.Status != nil || code != "" {
			t.Errorf("the other call gets %q", code)
		}
		return err
	}
	a, code := tell(t, e, rpckey.Options{Tx: runner{rpckey.InTx(s), first}}, func(context.Context) rpckey.Answer {
		return rpckey.Answer{Status: &statuspb.Status{Code: int32(codepb.Code_FAILED_PRECONDITION)}}
	})
	if m, _ := a.Message.(*payv1.ChargeResponse); m.GetChargeId() != "ch_1" || a.Status != nil || len(a.Header[rpckey.MetadataReplayed]) != 1 {
		t.Errorf("the caller gets %q: %+v", code, a)
	}
}

// Such an error is not shown before the store has it.
func TestErrorThatIsNotDurableIsNotShown(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	s := faultstore.New(mem)
	e, err := retrysafe.New(s, &retrysafe.Options{SettleTimeout: time.Millisecond})
	must(t, err)
	_, code := tell(t, e, rpckey.Options{Tx: runner{rpckey.InTx(mem), func(err error) error {
		s.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == faultstore.Swap {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		return err
	}}}, func(context.Context) rpckey.Answer {
		return rpckey.Answer{Status: &statuspb.Status{Code: int32(codepb.Code_FAILED_PRECONDITION)}}
	})
	if code != "outcome-pending" {
		t.Errorf("the caller gets %q", code)
	}
	s.Plan(nil)
}

// A handler may call another one through a guard. Under the key that is reserved already the
// inner call is a part of the outer one; under any other it is guarded.
func TestCallWithinACall(t *testing.T) {
	t.Parallel()
	g := guard(t, memstore.New(nil), rpckey.Options{})
	call := func(ctx context.Context, k string, next rpckey.Next) rpckey.Answer {
		return g.Unary(ctx, &rpckey.Call{
			Procedure: charge, Message: &payv1.ChargeRequest{}, Metadata: func(string) []string { return []string{k} },
		}, next)
	}
	runs := 0
	a := call(t.Context(), key, func(ctx context.Context, _ bool) rpckey.Answer {
		for _, k := range []string{"another", "another", key, key} {
			if a := call(ctx, k, func(context.Context, bool) rpckey.Answer {
				runs++
				return rpckey.Answer{Message: &payv1.ChargeResponse{}}
			}); a.Status != nil {
				t.Errorf("under %q the inner call gets %v", k, a.Status)
			}
		}
		return rpckey.Answer{Message: &payv1.ChargeResponse{}}
	})
	if a.Status != nil || runs != 3 {
		t.Errorf("the call gets %v, and the inner ones ran %d times, want once under another key and twice under its own", a.Status, runs)
	}
}

// A scope has no control character, so that it is none of retrysafe's own.
func TestScopeWithAControlCharacterIsNoCaller(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"a\x1fb", "\x00", "a\x7f"} {
		code := ""
		g, err := rpckey.New(engine(t, memstore.New(nil)), func(context.Context) (string, error) { return scope, nil },
			&rpckey.Options{Logger: slog.New(slog.DiscardHandler), Report: func(n rpckey.Notice) { code = n.Code }})
		must(t, err)
		if ask(t, g, &payv1.ChargeRequest{}); code != "caller-unidentified" {
			t.Errorf("under the scope %q the call gets %q", scope, code)
		}
	}
}

// Whether a stream passes is decided by the options of its procedure.
func TestStreamsPassByProcedure(t *testing.T) {
	t.Parallel()
	g := guard(t, memstore.New(nil), rpckey.Options{Procedures: map[string]func(*rpckey.Options){charge: func(o *rpckey.Options) { o.Streams = rpckey.StreamsPass }}})
	for procedure, passes := range map[string]bool{charge: true, refund: false} {
		if a := g.Stream(&rpckey.Call{Procedure: procedure}); (a == nil) != passes {
			t.Errorf("%s: a stream gets %+v", procedure, a)
		}
	}
}
