package e2e_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
)

// The first call runs; every retry gets its message, headers and trailers.
func TestRetryGetsMessageHeadersAndTrailers(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t)
		first := c.call(t.Context(), pay(key, 1200))
		first.is(t, 1, false)
		if got := lasting(first.header); len(got["x-many"]) != 2 || len(got["x-trace-bin"]) != 1 || len(got[rpckey.MetadataExpires]) != 1 {
			t.Errorf("the first caller got the header %v", first.header)
		}
		if got := first.trailer.Get("x-end"); len(got) != 1 {
			t.Errorf("the first caller got the trailer %v", first.trailer)
		}
		for range 3 {
			again := c.call(t.Context(), pay(`"`+key+`"`, 1200)) // quoted it is the same key
			again.is(t, 1, true)
			again.same(t, first)
		}
		s.ranTimes(t, 1)
		c.call(t.Context(), pay(other, 1200)).is(t, 2, false)
		if r := s.state(t, key); r.Operation != "/retrysafe.test.pay.v1.PayService/Charge" || r.Result.Status != 200 || r.Fingerprint.Alg != 4 {
			t.Errorf("the record is %+v", r)
		}
	})
}

// A different call under the same key is refused and changes nothing. Fields that a path
// in Exclude names do not count.
func TestDifferentCallUnderTheSameKeyIsRefused(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.Exclude = []string{"sent_at", "devices.battery"} })
		ask := func(change func(*payv1.ChargeRequest)) *outcome {
			m := &payv1.ChargeRequest{
				Amount: 1200, Currency: "EUR", Labels: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, SentAt: timestamppb.New(time.Unix(1, 0)),
				Devices: []*payv1.Device{{Model: "x", Battery: 1}, {Model: "y", Battery: 2}}, Method: &payv1.ChargeRequest_Card{Card: "4242"},
			}
			change(m)
			return c.call(t.Context(), request{key: key, message: m})
		}
		first := ask(func(*payv1.ChargeRequest) {})
		first.is(t, 1, false)
		for range 8 { // a client encodes a map in another order each time
			ask(func(*payv1.ChargeRequest) {}).same(t, first)
		}
		ask(func(m *payv1.ChargeRequest) { m.SentAt = nil }).same(t, first)
		ask(func(m *payv1.ChargeRequest) { m.Devices[1].Battery = 99 }).same(t, first)
		for name, change := range map[string]func(*payv1.ChargeRequest){
			"amount":          func(m *payv1.ChargeRequest) { m.Amount++ },
			"currency":        func(m *payv1.ChargeRequest) { m.Currency = "" },
			"label":           func(m *payv1.ChargeRequest) { m.Labels["a"] = "2" },
			"model":           func(m *payv1.ChargeRequest) { m.Devices[0].Model = "z" },
			"order of a list": func(m *payv1.ChargeRequest) { m.Devices[0], m.Devices[1] = m.Devices[1], m.Devices[0] },
			"one of":          func(m *payv1.ChargeRequest) { m.Method = &payv1.ChargeRequest_Iban{Iban: "4242"} },
		} {
			i := ask(change).refused(t, codes.FailedPrecondition, "key-reused")
			if i.GetMetadata()["key_hash"] != retrysafe.HashKey(key) || i.GetMetadata()["safe_new_key"] != "false" {
				t.Errorf("%s: %v", name, i)
			}
		}
		c.call(t.Context(), request{key: key, message: &payv1.RefundRequest{RequestId: "r"}}).refused(t, codes.FailedPrecondition, "key-reused")
		ask(func(*payv1.ChargeRequest) {}).same(t, first)
		s.ranTimes(t, 1)
	})
}

// Of thirty calls at once one runs, and all get its answer.
func TestThirtyConcurrentDuplicatesRunOnce(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for name, policy := range map[string]retrysafe.Policy{
			"conflict": {}, "wait": {InFlight: retrysafe.InFlightWait, Wait: time.Minute},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, c := tr.start(t, withPolicy(policy))
				var all sync.WaitGroup
				answers := make(chan *outcome, 30)
				for range cap(answers) {
					all.Go(func() {
						for {
							o := c.call(t.Context(), pay(key, 1))
							if o.code != codes.Unavailable || o.info().GetMetadata()["code"] != "in-flight" {
								answers <- o
								return
							}
						}
					})
				}
				all.Wait()
				close(answers)
				first := <-answers
				for o := range answers {
					o.is(t, 1, o.replayed())
					o.same(t, first)
				}
				s.ranTimes(t, 1)
			})
		}
	})
}

// A call that comes while the first one runs is told to come back.
func TestCallInFlightIsRefusedWithADelay(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		var c client
		s, c := tr.start(t, func(cfg *config) {
			cfg.handler = func(ctx context.Context, _ *order) (*payv1.ChargeResponse, error) {
				o := c.call(context.WithoutCancel(ctx), pay(key, 1))
				o.refused(t, codes.Unavailable, "in-flight")
				if strings.HasPrefix(tr.name, "connect") && !strings.Contains(tr.name, "grpc") {
					if o.header.Get("retry-after")[0] != "1" {
						t.Errorf("the header is %v", o.header)
					}
				} else if len(o.trailer.Get("grpc-retry-pushback-ms"))+len(o.header.Get("grpc-retry-pushback-ms")) != 1 {
					t.Errorf("there is no pushback: %v %v", o.header, o.trailer)
				}
				c.call(context.WithoutCancel(ctx), pay(key, 2)).refused(t, codes.FailedPrecondition, "key-reused")
				return &payv1.ChargeResponse{ChargeId: "ch_1"}, nil
			}
		})
		c.call(t.Context(), pay(key, 1)).is(t, 1, false)
		s.ranTimes(t, 1)
	})
}

// Errors that are answers are stored as the errors they are: code, text, details,
// metadata.
func TestErrorAnswersAreStoredAsTheErrorsTheyAre(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for code, meaning := range rpckey.DefaultCodes() {
			if meaning != rpckey.MeaningAnswer {
				continue
			}
			t.Run(code.String(), func(t *testing.T) {
				t.Parallel()
				s, c := tr.start(t, withHandler(func(context.Context, *order) (*payv1.ChargeResponse, error) {
					return nil, &fault{code: codes.Code(code), text: "sorry, 100 € are too much", meta: map[string]string{"x-why": "limit"}, details: []proto.Message{
						&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "amount", Description: "too large"}}},
						&payv1.QuoteRequest{Amount: 7},
					}}
				}))
				first := c.call(t.Context(), pay(key, 1))
				if first.code != codes.Code(code) || len(first.details) != 2 || first.replayed() || len(first.header.Get("x-why"))+len(first.trailer.Get("x-why")) != 1 {
					t.Fatalf("the first caller got %s %q %v %v %v", first.code, first.text, first.details, first.header, first.trailer)
				}
				for range 2 {
					again := c.call(t.Context(), pay(key, 1))
					again.same(t, first)
					if !again.replayed() {
						t.Error("the replay is not marked")
					}
				}
				s.ranTimes(t, 1)
				if r := s.state(t, key); r.State != retrysafe.StateCompleted || r.Result.Status < 400 {
					t.Errorf("the record is %s with %d", r.State, r.Result.Status)
				}
			})
		}
	})
}

// The code of an error and the effect mode say what becomes of an attempt.
func TestWhatAnErrorMeans(t *testing.T) {
	t.Parallel()
	const (
		completed = retrysafe.StateCompleted
		retryable = retrysafe.StateRetryable
		unknown   = retrysafe.StateUnknown
	)
	for _, tr := range transports[:2] {
		for code, meaning := range rpckey.DefaultCodes() {
			for _, p := range []retrysafe.Policy{
				{}, {Effects: retrysafe.EffectsKeyed},
				{OnFailure: retrysafe.FailureStore}, {OnFailure: retrysafe.FailureRetry},
			} {
				proven := unknown
				if p.Effects == retrysafe.EffectsKeyed {
					proven = retryable
				}
				want := map[rpckey.Meaning]retrysafe.State{
					rpckey.MeaningAnswer: completed, rpckey.MeaningNotExecuted: retryable, rpckey.MeaningFailed: proven, rpckey.MeaningServerError: proven,
				}[meaning]
				if meaning == rpckey.MeaningServerError && p.OnFailure != retrysafe.FailureDefault {
					want = map[retrysafe.FailurePolicy]retrysafe.State{retrysafe.FailureStore: completed, retrysafe.FailureRetry: retryable}[p.OnFailure]
				}
				t.Run(tr.name+" "+code.String()+" "+p.Effects.String()+" "+want.String(), func(t *testing.T) {
					t.Parallel()
					s, c := tr.start(t, withPolicy(p), withHandler(func(context.Context, *order) (*payv1.ChargeResponse, error) {
						return nil, &fault{code: codes.Code(code), text: "no"}
					}))
					first := c.call(t.Context(), pay(key, 1))
					if first.code != codes.Code(code) || first.text != "no" {
						t.Errorf("the caller got %s %q instead of the handler's error", first.code, first.text)
					}
					if got := s.state(t, key).State; got != want {
						t.Errorf("the record is %s, want %s", got, want)
					}
					again := c.call(t.Context(), pay(key, 1))
					switch want {
					case completed:
						again.same(t, first)
						s.ranTimes(t, 1)
					case unknown:
						again.refused(t, codes.Unknown, "outcome-unknown")
						s.ranTimes(t, 1)
					default:
						s.ranTimes(t, 2)
					}
				})
			}
		}
	}
}

// The table can be changed, and proof that a handler gives outranks it.
func TestMeaningOfACodeCanBeChanged(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(cfg *config) {
			cfg.Codes = map[codepb.Code]rpckey.Meaning{
				codepb.Code_UNAVAILABLE: rpckey.MeaningNotExecuted, codepb.Code_NOT_FOUND: rpckey.MeaningFailed, codepb.Code_ABORTED: rpckey.MeaningAnswer,
			}
		})
		if !strings.Contains(s.log.String(), "UNAVAILABLE is taken as proof that nothing happened") {
			t.Errorf("there is no caveat in the log: %s", s.log)
		}
		const third = "3a5a1c1c-9d7e-4f0e-8a53-57a2e7a5f0b1"
		for _, step := range []struct {
			key   string
			fault fault
			want  retrysafe.State
		}{
			{key, fault{code: codes.Unavailable, text: "no"}, retrysafe.StateRetryable},
			{key, fault{code: codes.NotFound, text: "no"}, retrysafe.StateUnknown},
			{other, fault{code: codes.Aborted, text: "no"}, retrysafe.StateCompleted},
			{third, fault{code: codes.Internal, text: "no", cause: retrysafe.NotExecuted(errors.New("nothing was sent"))}, retrysafe.StateRetryable},
		} {
			s.use(func(context.Context, *order) (*payv1.ChargeResponse, error) { return nil, &step.fault })
			c.call(t.Context(), pay(step.key, 1))
			if got := s.state(t, step.key).State; got != step.want {
				t.Errorf("after %s the record is %s, want %s", step.fault.code, got, step.want)
			}
		}
	})
}

// An error of the program's own that is no status is one of the code UNKNOWN, and its
// value may be shared by all calls.
func TestPlainAndSharedErrors(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		plain := errors.New("a plain error")
		s, c := tr.start(t, withHandler(func(context.Context, *order) (*payv1.ChargeResponse, error) { return nil, plain }),
			withPolicy(retrysafe.Policy{OnFailure: retrysafe.FailureStore}))
		first := c.call(t.Context(), pay(key, 1))
		if first.code != codes.Unknown || first.text != "a plain error" {
			t.Errorf("got %s %q", first.code, first.text)
		}
		c.call(t.Context(), pay(key, 1)).same(t, first)
		s.ranTimes(t, 1)
	})
}

// A handler's panic is settled by what its effect mode proves.
func TestPanicIsSettledByProof(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		boom := withHandler(func(context.Context, *order) (*payv1.ChargeResponse, error) { panic("out of coffee") })
		s, c := tr.start(t, boom)
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unknown, "attempt-unknown")
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unknown, "outcome-unknown")
		s.ranTimes(t, 1)
		if !strings.Contains(s.log.String(), "out of coffee") {
			t.Error("the panic is not in the log")
		}
		s, c = tr.start(t, boom, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}))
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Internal, "attempt-failed")
		s.use(s.charged)
		c.call(t.Context(), pay(key, 1)).is(t, 2, false)
		s.ranTimes(t, 2)
	})
}

// A handler that returns nothing has not answered.
func TestNothingIsNoAnswer(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, withHandler(func(context.Context, *order) (*payv1.ChargeResponse, error) { return nil, nil }))
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unknown, "attempt-unknown")
		if got := s.state(t, key).State; got != retrysafe.StateUnknown {
			t.Errorf("the record is %s", got)
		}
	})
}

// A caller that hangs up loses nothing but the line: the handler goes on, and a retry
// gets its answer.
func TestCallerThatHangsUpGetsTheAnswerLater(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		began, goOn := make(chan struct{}), make(chan struct{})
		s, c := tr.start(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: time.Minute}))
		s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
			close(began)
			<-goOn
			if ctx.Err() != nil {
				t.Errorf("the handler's context has ended: %v", ctx.Err())
			}
			return s.charged(ctx, o)
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		if o := c.call(ctx, pay(key, 1)); o.code != codes.Canceled {
			t.Errorf("the caller that hung up got %s %q", o.code, o.text)
		}
		close(goOn)
		again := c.call(t.Context(), pay(key, 1))
		again.is(t, 1, true)
		s.ranTimes(t, 1)
	})
}

// Nothing runs unless the store has confirmed the reservation.
func TestStoreDownRefuses(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t)
		s.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		i := c.call(t.Context(), pay(key, 1)).refused(t, codes.Unavailable, "store-unavailable")
		if i.GetMetadata()["retryable"] != "true" {
			t.Errorf("got %v", i)
		}
		s.untouched(t)
		s.fault.Plan(nil)
		c.call(t.Context(), pay(key, 1)).is(t, 1, false)
	})
}

// An answer over the limit is executed once, and sent whole to the first caller.
func TestResponseOverTheLimitIsNeverASecondRun(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.MaxResponse = 8 })
		c.call(t.Context(), pay(key, 1)).is(t, 1, false)
		again := c.call(t.Context(), pay(key, 1))
		again.refused(t, codes.AlreadyExists, "response-not-stored")
		if !again.replayed() {
			t.Error("the replay is not marked")
		}
		s.ranTimes(t, 1)
	})
}

// An answer that an operator, a reconciler or a sweeper has stored is none of RPC. A
// caller learns that the call was executed, or how it ended.
func TestAnswersThatAreNotOfRPC(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for name, c := range map[string]struct {
			result retrysafe.Result
			check  func(*testing.T, *outcome)
		}{
			"success": {retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{}`)}, func(t *testing.T, o *outcome) {
				t.Helper()
				o.refused(t, codes.AlreadyExists, "response-not-stored")
			}},
			"failure": {retrysafe.Result{Status: 500, Body: []byte("internal text")}, func(t *testing.T, o *outcome) {
				t.Helper()
				if o.code != codes.Internal || strings.Contains(o.text, "internal text") || !o.replayed() {
					t.Errorf("got %s %q %v", o.code, o.text, o.header)
				}
			}},
			"declined": {retrysafe.Result{Status: 402}, func(t *testing.T, o *outcome) {
				t.Helper()
				if o.code != codes.FailedPrecondition || !o.replayed() {
					t.Errorf("got %s %q %v", o.code, o.text, o.header)
				}
			}},
			"another message": {retrysafe.Result{Status: 200, Header: map[string][]string{"Content-Type": {`application/protobuf; messagetype=retrysafe.test.pay.v1.Device`}}},
				func(t *testing.T, o *outcome) {
					t.Helper()
					o.refused(t, codes.Unavailable, "record-unreadable")
				}},
			"damaged": {retrysafe.Result{Status: 200, Header: map[string][]string{"Content-Type": {`application/protobuf; messagetype=retrysafe.test.pay.v1.ChargeResponse`}}, Body: []byte{1}},
				func(t *testing.T, o *outcome) {
					t.Helper()
					o.refused(t, codes.Unavailable, "record-unreadable")
				}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, client := tr.start(t)
				client.call(t.Context(), pay(key, 1)).is(t, 1, false)
				w := s.state(t, key).Update()
				w.Result, w.Term = &c.result, time.Hour
				_, err := s.mem.Swap(t.Context(), w)
				must(t, err)
				c.check(t, client.call(t.Context(), pay(key, 1)))
				s.ranTimes(t, 1)
			})
		}
	})
}
