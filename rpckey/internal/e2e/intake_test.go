package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/connectkey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1/payv1connect"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A call whose key cannot be used reserves nothing, and its handler does not run.
func TestCallWithoutAUsableKeyIsRefused(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t)
		c.call(t.Context(), pay("", 1)).refused(t, codes.InvalidArgument, "key-missing")
		for _, k := range []string{"a b", "a,b", `"half`, `"k";v=1`, strings.Repeat("k", 256), `""`} {
			i := c.call(t.Context(), pay(k, 1)).refused(t, codes.InvalidArgument, "key-malformed")
			if i.GetMetadata()["safe_new_key"] != "true" || i.GetMetadata()["key_hash"] != "" {
				t.Errorf("%q: got %v", k, i)
			}
		}
		c.call(t.Context(), request{key: key, more: []string{key}, message: &payv1.ChargeRequest{}}).refused(t, codes.InvalidArgument, "key-malformed")
		anonymous := pay(key, 1)
		anonymous.meta = map[string]string{"x-tenant": "anonymous"}
		c.call(t.Context(), anonymous).refused(t, codes.PermissionDenied, "caller-unidentified")
		anonymous.meta["x-tenant"] = strings.Repeat("t", 1025)
		c.call(t.Context(), anonymous).refused(t, codes.PermissionDenied, "caller-unidentified")
		s.untouched(t)
		if len(s.notices) != 10 || s.notices[0] != (rpckey.Notice{Code: "key-missing", Procedure: "/retrysafe.test.pay.v1.PayService/Charge", Enforced: true}) {
			t.Errorf("reported %+v", s.notices)
		}
	})
}

// Options of the key: another name, quotes, and calls that may go without.
func TestOptionsOfTheKey(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.KeyMetadata, c.Strict, c.Optional = "X-Request-Key", true, true })
		named := func(k string) request {
			r := pay("", 1)
			r.meta = map[string]string{"x-request-key": k}
			return r
		}
		c.call(t.Context(), pay(key, 1)).is(t, 1, false)
		c.call(t.Context(), pay(key, 1)).is(t, 2, false)
		c.call(t.Context(), named(key)).refused(t, codes.InvalidArgument, "key-malformed")
		c.call(t.Context(), named(`"`+key+`"`)).is(t, 3, false)
		c.call(t.Context(), named(`"`+key+`"`)).is(t, 3, true)
		s.ranTimes(t, 3)
	})
}

// Two tenants never share a key, and the scope comes from the caller alone.
func TestTenantsAreApart(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		_, c := tr.start(t)
		rival := pay(key, 1)
		rival.meta = map[string]string{"x-tenant": "rival"}
		c.call(t.Context(), pay(key, 1)).is(t, 1, false)
		c.call(t.Context(), rival).is(t, 2, false)
		c.call(t.Context(), rival).is(t, 2, true)
		c.call(t.Context(), pay(key, 1)).is(t, 1, true)
	})
}

// The key may be in a field of the message (AIP-155), which does not count in the
// fingerprint.
func TestKeyInAField(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		const procedure = "/retrysafe.test.pay.v1.PayService/Refund"
		s, c := tr.start(t, func(c *config) {
			c.Procedures = map[string]func(*rpckey.Options){procedure: func(o *rpckey.Options) { o.KeyField = "request_id" }}
		})
		refund := func(field, meta string, amount int64) *outcome {
			return c.call(t.Context(), request{key: meta, message: &payv1.RefundRequest{RequestId: field, ChargeId: "ch_1", Amount: amount}})
		}
		refund(key, "", 5).is(t, 1, false)
		refund(key, "", 5).is(t, 1, true)
		refund(key, key, 5).is(t, 1, true) // the same key twice is one key
		refund("", key, 5).is(t, 1, true)
		refund(key, "", 6).refused(t, codes.FailedPrecondition, "key-reused")
		refund(key, other, 5).refused(t, codes.InvalidArgument, "key-malformed")
		refund("a b", "", 5).refused(t, codes.InvalidArgument, "key-malformed")
		if o := refund("", "", 5); !strings.Contains(o.text, "request_id") {
			t.Errorf("got %q", o.text)
		} else {
			o.refused(t, codes.InvalidArgument, "key-missing")
		}
		s.ranTimes(t, 1)
		c.call(t.Context(), pay(other, 1)).is(t, 2, false) // other procedures have their key in the metadata
	})
}

// A request message without the field for the key is a defect of the service, which the
// first call shows.
func TestMessageWithoutTheFieldForTheKeyIsRefused(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.KeyField = "request_id" })
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Internal, "key-field-missing")
		s.untouched(t)
		if log := s.log.String(); !strings.Contains(log, "retrysafe.test.pay.v1.ChargeRequest has no field request_id of type string") {
			t.Errorf("the log says %s", log)
		}
	})
}

// Methods without side effects pass, with and without a key, and so do streams of them.
// Other streams are refused, unless the options say otherwise.
func TestStreamsAndMethodsWithoutSideEffects(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t)
		for n := range 2 {
			c.call(t.Context(), request{message: &payv1.QuoteRequest{}}).is(t, 2*n+1, false)
			c.call(t.Context(), request{key: key, message: &payv1.QuoteRequest{}}).is(t, 2*n+2, false)
		}
		if o := c.watch(t.Context(), true); o.res.GetChargeId() != "priced" {
			t.Errorf("got %+v", o)
		}
		s.ranTimes(t, 5)
		c.watch(t.Context(), false).refused(t, codes.Unimplemented, "stream-unsupported")
		s.ranTimes(t, 5)

		for _, change := range []func(*config){
			func(c *config) { c.Streams = rpckey.StreamsPass },
			func(c *config) { c.Unguarded = []string{"/retrysafe.test.pay.v1.PayService/"} },
			func(c *config) { c.Unguarded = []string{"/retrysafe.test.pay.v1.PayService/Watch"} },
		} {
			s, c := tr.start(t, change)
			if o := c.watch(t.Context(), false); o.res.GetChargeId() != "watched" {
				t.Errorf("got %+v", o)
			}
			s.ranTimes(t, 1)
		}
	})
}

// A procedure that is not guarded passes as if there were no interceptor.
func TestUnguardedProceduresPass(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.Unguarded = []string{"/retrysafe.test.pay.v1.PayService/Charge"} })
		for n := range 2 {
			o := c.call(t.Context(), pay(key, 1))
			o.is(t, n+1, false)
			if len(o.header.Get("x-run")) != 1 || len(o.header.Get(rpckey.MetadataExpires)) != 0 || len(o.trailer.Get("x-end")) != 1 {
				t.Errorf("got %v %v", o.header, o.trailer)
			}
		}
		c.call(t.Context(), request{message: &payv1.RefundRequest{}}).refused(t, codes.InvalidArgument, "key-missing")
		s.ranTimes(t, 2)
	})
}

// Probes of a server bring no key.
func TestHealthChecksPass(t *testing.T) {
	t.Parallel()
	s := newService(t)
	server := grpcServer(s)
	healthpb.RegisterHealthServer(server, health.NewServer())
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	res, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || res.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v", res, err)
	}
}

// Metadata that belongs to one exchange or session is sent to the first caller and never
// stored.
func TestMetadataOfOneExchangeIsNotStored(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.OmitMetadata = []string{"X-Session"} })
		s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
			res, err := s.charged(ctx, o)
			o.header.Set("set-cookie", "session=1")
			o.header.Set("x-session", "1")
			o.trailer.Set("x-session", "1")
			return res, err
		})
		first := c.call(t.Context(), pay(key, 1))
		first.is(t, 1, false)
		if len(first.header.Get("set-cookie")) != 1 || len(first.header.Get("x-session")) != 1 || len(first.trailer.Get("x-session")) != 1 {
			t.Errorf("the first caller got %v %v", first.header, first.trailer)
		}
		again := c.call(t.Context(), pay(key, 1))
		again.is(t, 1, true)
		if len(again.header.Get("set-cookie"))+len(again.header.Get("x-session"))+len(again.trailer.Get("x-session")) != 0 || len(again.header.Get("x-run")) != 1 {
			t.Errorf("the retry got %v %v", again.header, again.trailer)
		}
		for name := range s.state(t, key).Result.Header {
			if name := strings.ToLower(name); strings.Contains(name, "session") || strings.Contains(name, "cookie") {
				t.Errorf("%s is stored", name)
			}
		}
	})
}

// Metadata that the options name counts in the fingerprint.
func TestFingerprintMetadata(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, c := tr.start(t, func(c *config) { c.FingerprintMetadata = []string{"x-version"} })
		ask := func(version string) *outcome {
			r := pay(key, 1)
			r.meta = map[string]string{"x-version": version, "x-trace": version}
			return c.call(t.Context(), r)
		}
		ask("1").is(t, 1, false)
		ask("1").is(t, 1, true)
		ask("2").refused(t, codes.FailedPrecondition, "key-reused")
		s.ranTimes(t, 1)
	})
}

// The same call in another encoding or by another protocol is the same call.
func TestProtocolsShareKeys(t *testing.T) {
	t.Parallel()
	s, first := transports[1].start(t)
	got := first.call(t.Context(), pay(key, 1))
	got.is(t, 1, false)
	for _, tr := range transports[2:] {
		again := tr.dial(t, s.addr).call(t.Context(), pay(key, 1))
		again.is(t, 1, true)
		if again.res.GetAmount() != 1 || len(again.res.GetLabels()) != 3 {
			t.Errorf("%s: got %v", tr.name, again.res)
		}
	}
	s.ranTimes(t, 1)
}

// A server of gRPC and one of Connect over one store are one service.
func TestServersOfBothKindsShareKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	transports[0].listen(t, s)
	overGRPC := transports[0].dial(t, s.addr)
	transports[1].listen(t, s)
	overConnect := transports[1].dial(t, s.addr)
	first := overGRPC.call(t.Context(), pay(key, 1))
	first.is(t, 1, false)
	again := overConnect.call(t.Context(), pay(key, 1))
	again.is(t, 1, true)
	first.header.Set("x-trace-bin", "AP8B") // a client of gRPC decodes it
	again.same(t, first)
}

// A guard of HTTP around a handler of Connect reserves the key, and the interceptor
// inside lets the call pass.
func TestGuardOfHTTPOutsideIsEnough(t *testing.T) {
	t.Parallel()
	engine, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	outer, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil }, nil)
	must(t, err)
	s, c := transports[1].start(t, func(c *config) { c.outer = outer.Handler })
	c.call(t.Context(), pay(key, 1)).is(t, 1, false)
	c.call(t.Context(), pay(key, 1)).is(t, 1, true)
	s.ranTimes(t, 1)
	grpc := transports[3].dial(t, s.addr)
	if o := grpc.call(t.Context(), pay(other, 1)); o.code == codes.OK {
		t.Errorf("a guard of HTTP has let gRPC pass")
	}
	s.ranTimes(t, 1)
}

// Handlers of Connect in the simple form set response metadata through their context.
func TestSimpleHandlersOfConnect(t *testing.T) {
	t.Parallel()
	for _, tr := range transports[1:5] {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			auth := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
					info, _ := connect.CallInfoForHandlerContext(ctx)
					info.ResponseHeader().Set("X-Outer", fmt.Sprint(s.runs.Load()))
					return next(withTenant(ctx, nil), r)
				}
			})
			charge := func(ctx context.Context, r *payv1.ChargeRequest) (*payv1.ChargeResponse, error) {
				o := &order{amount: r.GetAmount()}
				res, err := s.run(ctx, o)
				info, _ := connect.CallInfoForHandlerContext(ctx)
				info.ResponseHeader().Set("X-Run", o.header.Get("x-run")[0])
				info.ResponseTrailer().Set("X-End", o.trailer.Get("x-end")[0])
				if r.GetAmount() < 0 {
					return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("negative"))
				}
				return res, err
			}
			mux := http.NewServeMux()
			mux.Handle(payv1connect.PayServiceChargeProcedure, connect.NewUnaryHandlerSimple(payv1connect.PayServiceChargeProcedure, charge,
				connect.WithInterceptors(auth, connectkey.Interceptor(s.guard))))
			l := listen(t)
			serveHTTP(t, mux, l)
			c := tr.dial(t, l.Addr().String())

			first := c.call(t.Context(), pay(key, 1))
			first.is(t, 1, false)
			again := c.call(t.Context(), pay(key, 1))
			again.is(t, 1, true)
			for _, o := range []*outcome{first, again} {
				if !slices.Equal(o.header.Get("x-run"), []string{"1"}) || !slices.Equal(o.trailer.Get("x-end"), []string{"1"}) || len(o.header.Get("x-outer")) != 1 {
					t.Errorf("got %v %v", o.header, o.trailer)
				}
			}
			if r := s.state(t, key); len(r.Result.Header["X-Outer"]) != 0 {
				t.Error("the metadata of an interceptor before the guard is stored")
			}
			failed := c.call(t.Context(), pay(other, -1))
			replay := c.call(t.Context(), pay(other, -1))
			replay.header.Set("x-outer", failed.header.Get("x-outer")...)
			replay.same(t, failed)
		})
	}
}

// An error may be a variable of the program's, shared by all calls.
func TestSharedErrorOfConnect(t *testing.T) {
	t.Parallel()
	s := newService(t)
	shared := connect.NewError(connect.CodeNotFound, errors.New("no such account"))
	mux := http.NewServeMux()
	mux.Handle(payv1connect.PayServiceChargeProcedure, connect.NewUnaryHandler(payv1connect.PayServiceChargeProcedure,
		func(context.Context, *connect.Request[payv1.ChargeRequest]) (*connect.Response[payv1.ChargeResponse], error) {
			return nil, fmt.Errorf("find account: %w", shared)
		},
		connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				res, err := next(withTenant(ctx, nil), r)
				if r.Header().Get("X-First") != "" && !errors.Is(err, shared) {
					t.Errorf("an interceptor before the guard got %v", err)
				}
				return res, err
			}
		}), connectkey.Interceptor(s.guard))))
	l := listen(t)
	serveHTTP(t, mux, l)
	c := transports[1].dial(t, l.Addr().String())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r := pay(fmt.Sprint(key, i), 1)
			r.meta = map[string]string{"x-first": "yes"}
			first := c.call(t.Context(), r)
			if first.code != codes.NotFound || first.text != "no such account" || len(first.header.Get(rpckey.MetadataExpires)) != 1 {
				t.Errorf("got %s %q %v", first.code, first.text, first.header)
			}
			again := c.call(t.Context(), pay(fmt.Sprint(key, i), 1))
			if again.code != first.code || again.text != first.text || !again.replayed() {
				t.Errorf("the retry got %s %q %v", again.code, again.text, again.header)
			}
		})
	}
	all.Wait()
	if len(shared.Meta()) != 0 {
		t.Errorf("the shared error has got %v", shared.Meta())
	}
}
