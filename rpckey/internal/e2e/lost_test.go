package e2e_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
)

// retryPolicy is that of a client of gRPC, in the words of its service config.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// retrying is an interceptor of a client that sends a call again after UNAVAILABLE, as a
// client of gRPC does by its service config. A connection that was reset is CANCELED to a
// client of Connect, although the call's context is not done.
var retrying = connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (res connect.AnyResponse, err error) {
		for ctx.Err() == nil {
			res, err = next(ctx, r)
			if code := connect.CodeOf(err); err == nil || code != connect.CodeUnavailable && code != connect.CodeCanceled {
				break
			}
		}
		return res, err
	}
})

// lossy are the transports with clients that retry by themselves. A client of gRPC does
// not retry after a header, and a handler of Connect always sends one: then it resends
// only what got no response at all.
var lossy = []struct {
	transport
	resends bool // also after the status UNAVAILABLE
}{
	{transport{"grpc", serveGRPC, dialGRPC(grpc.WithDefaultServiceConfig(retryPolicy))}, true},
	{transport{"connect to a client of grpc", serveConnect, dialGRPC(grpc.WithDefaultServiceConfig(retryPolicy))}, false},
	{transport{"connect", serveConnect, dialConnect(nil, connect.WithInterceptors(retrying))}, true},
	{transport{"connect as grpc", serveConnect, dialConnect(unencryptedHTTP2(), connect.WithGRPC(), connect.WithInterceptors(retrying))}, true},
}

// The connection is cut after the handler has run, before a byte of its answer has passed.
// The unmodified clients, with their own retry policies, get that answer: one effect.
func TestLostResponseIsReplayedToRetryingClients(t *testing.T) {
	t.Parallel()
	for _, tr := range lossy {
		for _, p := range []retrysafe.Policy{{}, {Effects: retrysafe.EffectsKeyed}} {
			p.InFlight, p.Wait = retrysafe.InFlightWait, time.Minute // so that five attempts are enough, also on a busy machine
			t.Run(tr.name+" "+p.Effects.String(), func(t *testing.T) {
				t.Parallel()
				s := newService(t, withPolicy(p))
				tr.listen(t, s)
				var ran atomic.Bool
				s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
					defer ran.Store(true)
					return s.charged(ctx, o)
				})
				proxy, err := netfault.New(s.addr)
				must(t, err)
				t.Cleanup(func() { proxy.Close() })
				cuts := 0
				proxy.Plan(netfault.Once(func(c netfault.Chunk) netfault.Verdict {
					if c.Dir != netfault.ToClient || !ran.Load() {
						return netfault.Verdict{}
					}
					cuts++
					return netfault.Verdict{Fault: netfault.Cut}
				}))
				c := tr.dial(t, proxy.Addr())
				got := c.call(t.Context(), pay(key, 1))
				got.is(t, 1, true)
				proxy.Plan(nil) // the plan is no longer called
				if cuts != 1 {
					t.Errorf("the connection was cut %d times", cuts)
				}
				s.ranTimes(t, 1)
			})
		}
	}
}

// A handler that fails with UNAVAILABLE after an unprotected effect does not run again,
// although the client retries.
func TestUnavailableAfterAnUnprotectedEffectRunsOnce(t *testing.T) {
	t.Parallel()
	for _, tr := range lossy {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			s, c := tr.start(t, withHandler(func(context.Context, *order) (*payv1.ChargeResponse, error) {
				return nil, &fault{code: codes.Unavailable, text: "the bank does not answer"}
			}))
			o := c.call(t.Context(), pay(key, 1))
			if tr.resends {
				o.refused(t, codes.Unknown, "outcome-unknown")
			} else if o.code != codes.Unavailable || o.text != "the bank does not answer" {
				t.Errorf("got %s %q", o.code, o.text)
			}
			s.ranTimes(t, 1)
			if !tr.resends {
				return
			}
			s, c = tr.start(t, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}))
			s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
				if s.runs.Load() < 3 {
					return nil, &fault{code: codes.Unavailable, text: "the bank does not answer"}
				}
				return s.charged(ctx, o)
			})
			c.call(t.Context(), pay(key, 1)).is(t, 3, false)
		})
	}
}

// A transport of net/http sends a request with a key again by itself when a kept-alive
// connection has died.
func TestTransportThatResendsByItself(t *testing.T) {
	t.Parallel()
	s := newService(t)
	transports[1].listen(t, s)
	proxy, err := netfault.New(s.addr)
	must(t, err)
	t.Cleanup(func() { proxy.Close() })
	c := dialConnect(nil)(t, proxy.Addr())
	c.call(t.Context(), pay(other, 1)).is(t, 1, false) // the connection is kept
	proxy.Plan(netfault.Once(netfault.Always(netfault.Cut, netfault.ToClient)))
	o := c.call(t.Context(), pay(key, 1))
	if o.code != codes.OK {
		o = c.call(t.Context(), pay(key, 1))
	}
	o.is(t, 2, true)
	s.ranTimes(t, 2)
}
