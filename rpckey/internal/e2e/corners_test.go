package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/rpckey/connectkey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1/payv1connect"
)

// An answer is shown only when it is durable. Until then the caller is told so, and a
// retry gets it.
func TestAnswerThatIsNotDurableIsNotShown(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.settle = time.Millisecond })
		s.fault.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == faultstore.Swap {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unavailable, "outcome-pending")
		s.fault.Plan(nil)
		o := c.call(t.Context(), pay(key, 1))
		for o.code == codes.Unavailable {
			o = c.call(t.Context(), pay(key, 1)) // the engine offers the answer in the background
		}
		o.is(t, 1, true)
		s.ranTimes(t, 1)
	})
}

// A call that was completed before all its stored phases were passed is settled as a failure.
// Its caller is told so once the store has confirmed that.
func TestAnswerBeforeAllPhasesIsAFailedAttempt(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for _, down := range []bool{false, true} {
			s, c := tr.start(t, func(c *config) { c.settle = time.Millisecond })
			s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
				if s.runs.Load() > 1 {
					if down {
						s.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
					}
					return s.charged(ctx, o)
				}
				_, err := retrysafe.Phase(ctx, "book", func(context.Context) (int, error) { return 1, nil })
				x, _ := retrysafe.FromContext(ctx)
				return nil, errors.Join(&fault{code: codes.Unavailable, text: "not now"}, err, x.Release(ctx, errors.New("not now")))
			})
			c.call(t.Context(), pay(key, 1))
			if o := c.call(t.Context(), pay(key, 1)); down {
				o.refused(t, codes.Unavailable, "outcome-pending")
			} else {
				o.refused(t, codes.Unknown, "attempt-unknown")
			}
			s.ranTimes(t, 2)
			s.fault.Plan(nil)
		}
	})
}

// A call that was in flight when the store was moved is recorded in neither store: its
// caller is not told that the answer will be there.
func TestAnswerInAMovedStoreIsNotPromised(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.settle = time.Millisecond })
		s.fault.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == faultstore.Swap {
				return faultstore.Moved
			}
			return faultstore.None
		})
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unknown, "outcome-unknown")
		s.ranTimes(t, 1)
	})
}

// take gives the record to another attempt, as a process would whose lease had lapsed.
func (s *service) take(t *testing.T, change func(*retrysafe.Write)) {
	t.Helper()
	w := s.state(t, key).Update()
	w.Owner, w.Overwrite, w.Attempt, w.Term = retrysafe.Owner{7}, true, w.Attempt+1, time.Hour
	change(&w)
	_, err := s.mem.Swap(context.Background(), w)
	must(t, err)
}

// The answer of an attempt that has lost its record is not shown: its caller gets what
// the record says.
func TestAttemptThatLostItsRecord(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t)
		c.call(t.Context(), pay(other, 1)).is(t, 1, false)
		answer := s.state(t, other).Result
		for name, step := range map[string]struct {
			change func(*retrysafe.Write)
			check  func(*testing.T, *outcome)
		}{
			"completed": {func(w *retrysafe.Write) { w.State, w.Result = retrysafe.StateCompleted, answer }, func(t *testing.T, o *outcome) {
				t.Helper()
				o.is(t, 1, true)
			}},
			"in flight": {func(*retrysafe.Write) {}, func(t *testing.T, o *outcome) {
				t.Helper()
				o.refused(t, codes.Unavailable, "in-flight")
			}},
			"unknown": {func(w *retrysafe.Write) { w.State = retrysafe.StateUnknown }, func(t *testing.T, o *outcome) {
				t.Helper()
				o.refused(t, codes.Unknown, "outcome-unknown")
			}},
			"another request's": {func(w *retrysafe.Write) { w.Fingerprint.Sum[0]++ }, func(t *testing.T, o *outcome) { // it is not this caller that has reused the key
				t.Helper()
				o.refused(t, codes.Unknown, "outcome-unknown")
			}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, c := tr.start(t)
				s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
					s.take(t, step.change)
					return s.charged(ctx, o)
				})
				step.check(t, c.call(t.Context(), pay(key, 1)))
				s.ranTimes(t, 1)
			})
		}
	})
}

// A handler may settle its execution itself. Then that counts, and its caller gets what
// it returns.
func TestHandlerSettlesItself(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for name, step := range map[string]struct {
			settle func(context.Context, *retrysafe.Execution) error
			want   retrysafe.State
			told   string // to the caller of a handler that returns a success all the same
		}{
			"release": {func(ctx context.Context, x *retrysafe.Execution) error { return x.Release(ctx, errors.New("not sent")) }, retrysafe.StateRetryable, "attempt-failed"},
			"quarantine": {func(ctx context.Context, x *retrysafe.Execution) error {
				return x.Quarantine(ctx, errors.New("timed out"))
			}, retrysafe.StateUnknown, "attempt-unknown"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, c := tr.start(t, withHandler(func(ctx context.Context, _ *order) (*payv1.ChargeResponse, error) {
					x, _ := retrysafe.FromContext(ctx)
					return nil, errors.Join(&fault{code: codes.NotFound, text: "no"}, step.settle(ctx, x))
				}))
				if o := c.call(t.Context(), pay(key, 1)); o.code != codes.NotFound || o.text != "no" || len(o.header.Get("idempotency-expires")) != 0 {
					t.Errorf("got %s %q %v", o.code, o.text, o.header)
				}
				if got := s.state(t, key).State; got != step.want {
					t.Errorf("the record is %s, want %s", got, step.want)
				}
				s.use(func(ctx context.Context, _ *order) (*payv1.ChargeResponse, error) {
					x, _ := retrysafe.FromContext(ctx)
					return &payv1.ChargeResponse{ChargeId: "ch_1"}, step.settle(ctx, x)
				})
				if o := c.call(t.Context(), pay(other, 1)); o.code == codes.OK || o.info().GetMetadata()["code"] != step.told {
					t.Errorf("after a success that is not stored the caller gets %s %q %v, want %s", o.code, o.text, o.res, step.told)
				}
			})
		}
	})
}

// A handler of gRPC may send its header, and finds its method in the context. Nothing
// leaves before the answer is durable.
func TestHeldHeaderOfGRPC(t *testing.T) {
	t.Parallel()
	s, c := transports[0].start(t)
	s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
		must(t, grpc.SetHeader(ctx, metadata.Pairs("x-a", "1")))
		must(t, grpc.SendHeader(ctx, metadata.Pairs("x-b", "2")))
		if err := grpc.SetHeader(ctx, metadata.Pairs("x-c", "3")); err == nil {
			t.Error("a header was set after it was sent")
		}
		if err := grpc.SendHeader(ctx, nil); err == nil {
			t.Error("a header was sent twice")
		}
		if m, ok := grpc.Method(ctx); !ok || m != "/retrysafe.test.pay.v1.PayService/Charge" {
			t.Errorf("the method is %q", m)
		}
		must(t, grpc.SetTrailer(ctx, metadata.Pairs("x-end", "4")))
		return &payv1.ChargeResponse{ChargeId: "ch_1", Amount: o.amount}, nil
	})
	first := c.call(t.Context(), pay(key, 1))
	first.is(t, 1, false)
	if len(first.header.Get("x-a")) != 1 || len(first.header.Get("x-b")) != 1 || len(first.trailer.Get("x-end")) != 1 {
		t.Errorf("got %v %v", first.header, first.trailer)
	}
	c.call(t.Context(), pay(key, 1)).same(t, first)
}

// The headers and trailers of a response of Connect are stored in the handler's own
// transaction.
func TestCompleteTxOfConnectStoresTheMetadata(t *testing.T) {
	t.Parallel()
	b, err := openBank(t.Context(), filepath.Join(t.TempDir(), "keys.db"), "in_tx")
	must(t, err)
	t.Cleanup(func() { b.store.Close() })
	s := newService(t, byHand, func(c *config) { c.store = b.store })
	charge := func(ctx context.Context, r *connect.Request[payv1.ChargeRequest]) (*connect.Response[payv1.ChargeResponse], error) {
		s.runs.Add(1)
		tx, err := b.store.DB().BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer tx.Rollback()
		if r.Msg.GetAmount() < 0 {
			return nil, connectkey.CompleteTx(ctx, b.store.Tx(tx), connect.NewResponse[payv1.ChargeResponse](nil))
		}
		if _, err := tx.ExecContext(ctx, insertEffect, "an effect"); err != nil {
			return nil, err
		}
		res := connect.NewResponse(&payv1.ChargeResponse{ChargeId: "ch_1"})
		res.Header().Set("X-Run", "1")
		res.Trailer().Set("X-End", "1")
		info, _ := connect.CallInfoForHandlerContext(ctx)
		info.ResponseHeader().Set("X-Info", "1")
		if err := connectkey.CompleteTx(ctx, b.store.Tx(tx), res); err != nil {
			return nil, err
		}
		return res, tx.Commit()
	}
	mux := http.NewServeMux()
	mux.Handle(payv1connect.PayServiceChargeProcedure, connect.NewUnaryHandler(payv1connect.PayServiceChargeProcedure, charge,
		connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				return next(withTenant(ctx, nil), r)
			}
		}), connectkey.Interceptor(s.guard))))
	l := listen(t)
	serveHTTP(t, mux, l)
	c := transports[1].dial(t, l.Addr().String())
	first := c.call(t.Context(), pay(key, 1))
	first.is(t, 1, false)
	again := c.call(t.Context(), pay(key, 1))
	again.is(t, 1, true)
	again.same(t, first)
	for _, name := range []string{"x-run", "x-info"} {
		if !slices.Equal(again.header.Get(name), []string{"1"}) {
			t.Errorf("%s is %q", name, again.header.Get(name))
		}
	}
	b.has(t, 1)
	s.ranTimes(t, 1)
	c.call(t.Context(), pay(other, -1)).refused(t, codes.Unavailable, "attempt-failed") // it was given no response
}

// A handler that commits the transaction of Options.Tx itself has no answer.
func TestInTxThatTheHandlerEnds(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		_, b, c := inTx(t, tr, func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
			res, err := b.chargeInTx(ctx, o)
			return res, errors.Join(err, commitTx(ctx))
		})
		if o := c.call(t.Context(), pay(key, 1)); o.code == codes.OK {
			t.Errorf("got %v", o.res)
		}
		b.has(t, 1)
	})
}
