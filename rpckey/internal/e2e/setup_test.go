// Package e2e_test holds the interceptors of Connect and gRPC to the same promises, with
// their own clients and servers over the network.
package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/connectkey"
	"github.com/retrysafe/retrysafe/rpckey/grpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1/payv1connect"
	"github.com/retrysafe/retrysafe/store/memstore"
)

const (
	key   = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	other = "f2a0d6f4-9a51-4b7c-8f0e-2b6c1c6a7d10"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// order is what a handler is asked for, and where it sets the metadata of its response.
type order struct {
	amount  int64
	message proto.Message
	header  metadata.MD
	trailer metadata.MD
}

// A fault is an error of a handler in the terms of no transport.
type fault struct {
	code    codes.Code
	text    string
	details []proto.Message
	meta    map[string]string
	cause   error
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.cause }

type handler func(context.Context, *order) (*payv1.ChargeResponse, error)

// config is what a test may change before a service is started.
type config struct {
	rpckey.Options
	policy  retrysafe.Policy
	settle  time.Duration   // the engine's SettleTimeout
	store   retrysafe.Store // instead of one in memory
	handler handler
	outer   func(http.Handler) http.Handler // around the mux of Connect
	after   func()                          // when the guard has answered
}

// service is a guarded service that listens.
type service struct {
	c     *config
	addr  string
	guard *rpckey.Guard
	mem   *memstore.Store
	fault *faultstore.Store
	runs  atomic.Int32
	log   *journal

	mu      sync.Mutex
	notices []rpckey.Notice
}

// journal is where the guard logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// charged answers with the number of the run, so that a second run shows.
func (s *service) charged(_ context.Context, o *order) (*payv1.ChargeResponse, error) {
	n := s.runs.Load()
	o.header = metadata.Pairs("x-run", fmt.Sprint(n), "x-many", "a", "x-many", "b", "x-trace-bin", "\x00\xff\x01")
	o.trailer = metadata.Pairs("x-end", fmt.Sprint(n))
	return &payv1.ChargeResponse{ChargeId: fmt.Sprintf("ch_%d", n), Amount: o.amount, Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}, nil
}

func (s *service) run(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
	s.runs.Add(1)
	s.mu.Lock()
	h := s.c.handler
	s.mu.Unlock()
	return h(ctx, o)
}

func (s *service) answered() {
	if s.c.after != nil {
		s.c.after()
	}
}

// use replaces the handler of a service that listens.
func (s *service) use(h handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.handler = h
}

type tenantKey struct{}

var errAnonymous = errors.New("no caller is authenticated")

// tenant is what authentication has put into the context.
func tenant(ctx context.Context) (string, error) {
	if s, ok := ctx.Value(tenantKey{}).(string); ok && s != "anonymous" {
		return s, nil
	}
	return "", errAnonymous
}

// withTenant is what an authenticating interceptor does.
func withTenant(ctx context.Context, values []string) context.Context {
	return context.WithValue(ctx, tenantKey{}, append(values, "acme")[0])
}

// newService makes a service that does not listen yet.
func newService(t *testing.T, change ...func(*config)) *service {
	t.Helper()
	s := &service{log: new(journal), c: new(config)}
	s.c.handler = s.charged
	s.c.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	s.c.Report = func(n rpckey.Notice) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notices = append(s.notices, n)
	}
	for _, f := range change {
		f(s.c)
	}
	s.mem = memstore.New(nil)
	s.fault = faultstore.New(s.mem)
	store := s.c.store
	if store == nil {
		store = s.fault
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: s.c.policy, StoreTimeout: time.Minute, SettleTimeout: cmp.Or(s.c.settle, time.Minute)})
	must(t, err)
	s.guard, err = rpckey.New(engine, tenant, &s.c.Options)
	must(t, err)
	return s
}

func withPolicy(p retrysafe.Policy) func(*config) { return func(c *config) { c.policy = p } }

func withHandler(h handler) func(*config) {
	return func(c *config) { c.handler = h }
}

// state returns the record of a key.
func (s *service) state(t *testing.T, k string) retrysafe.Record {
	t.Helper()
	r, err := s.mem.Load(context.WithoutCancel(t.Context()), retrysafe.Ref{Scope: "acme", Key: k})
	must(t, err)
	return r
}

func (s *service) ranTimes(t *testing.T, want int) {
	t.Helper()
	if got := int(s.runs.Load()); got != want {
		t.Fatalf("the handler ran %d times, want %d", got, want)
	}
}

// untouched fails if the handler ran or anything was reserved.
func (s *service) untouched(t *testing.T) {
	t.Helper()
	s.ranTimes(t, 0)
	all, err := s.mem.List(t.Context(), retrysafe.Query{})
	must(t, err)
	if len(all) != 0 {
		t.Fatalf("%d records are stored, want none", len(all))
	}
}

// outcome is how a call has ended, as its client sees it.
type outcome struct {
	res     *payv1.ChargeResponse
	code    codes.Code
	text    string
	details []proto.Message
	header  metadata.MD // with Connect also the trailer of an error
	trailer metadata.MD
}

func (o *outcome) replayed() bool {
	return slices.Equal(o.header.Get(rpckey.MetadataReplayed), []string{"true"})
}

// info returns the ErrorInfo of a refusal.
func (o *outcome) info() *errdetails.ErrorInfo {
	for _, d := range o.details {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i
		}
	}
	return nil
}

// refused fails unless the call got this refusal.
func (o *outcome) refused(t *testing.T, code codes.Code, problem string) *errdetails.ErrorInfo {
	t.Helper()
	i := o.info()
	if o.code != code || i.GetMetadata()["code"] != problem || i.GetDomain() != rpckey.Domain ||
		i.GetReason() != strings.ToUpper(strings.ReplaceAll(problem, "-", "_")) {
		t.Fatalf("got %s %q %v, want %s %s", o.code, o.text, o.details, code, problem)
	}
	var help *errdetails.Help
	var retry *errdetails.RetryInfo
	for _, d := range o.details {
		switch d := d.(type) {
		case *errdetails.Help:
			help = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	if retryable := i.GetMetadata()["retryable"] == "true"; retryable != (retry != nil) || retryable && retry.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("%s: retryable is %v, and RetryInfo %v", problem, retryable, retry)
	}
	if len(help.GetLinks()) != 1 || !strings.Contains(help.GetLinks()[0].GetUrl(), "/docs/") {
		t.Errorf("%s: help is %v", problem, help)
	}
	return i
}

// is fails unless the call got the answer of this run of charged.
func (o *outcome) is(t *testing.T, run int, replayed bool) {
	t.Helper()
	if want := fmt.Sprintf("ch_%d", run); o.code != codes.OK || o.res.GetChargeId() != want || o.replayed() != replayed {
		t.Fatalf("got %s %q %v %v, replayed %v, want %s, %v", o.code, o.text, o.res, o.details, o.replayed(), want, replayed)
	}
}

// same fails unless two outcomes are the same in all that is promised.
func (o *outcome) same(t *testing.T, first *outcome) {
	t.Helper()
	encode := proto.MarshalOptions{Deterministic: true}
	bytes := func(m proto.Message) string {
		b, err := encode.Marshal(m)
		must(t, err)
		return string(b)
	}
	if o.code != first.code || o.text != first.text || bytes(o.res) != bytes(first.res) || len(o.details) != len(first.details) {
		t.Fatalf("got %s %q %v %v, want %s %q %v %v", o.code, o.text, o.res, o.details, first.code, first.text, first.res, first.details)
	}
	for i := range o.details {
		if bytes(o.details[i]) != bytes(first.details[i]) {
			t.Fatalf("detail %d is %v, want %v", i, o.details[i], first.details[i])
		}
	}
	for what, pair := range map[string][2]metadata.MD{"header": {o.header, first.header}, "trailer": {o.trailer, first.trailer}} {
		if got, want := lasting(pair[0]), lasting(pair[1]); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%s is %v, want %v", what, got, want)
		}
	}
}

// lasting returns the metadata that a replay must have too.
func lasting(md metadata.MD) map[string][]string {
	kept := map[string][]string{}
	for name, values := range md {
		if strings.HasPrefix(name, "x-") || name == rpckey.MetadataExpires {
			kept[name] = values
		}
	}
	return kept
}

// A request is one call of a client.
type request struct {
	key     string
	message proto.Message // a ChargeRequest, RefundRequest or QuoteRequest
	meta    map[string]string
	more    []string // further values of the key's metadata
}

func pay(k string, amount int64) request {
	return request{key: k, message: &payv1.ChargeRequest{Amount: amount, Currency: "EUR"}}
}

// A client calls a service.
type client interface {
	call(ctx context.Context, r request) *outcome
	// watch opens a stream, guarded or without side effects, and returns how it ends.
	watch(ctx context.Context, safe bool) *outcome
}

// A transport is one way to serve and to call.
type transport struct {
	name  string
	serve func(*testing.T, *service, net.Listener)
	dial  func(t *testing.T, addr string) client
}

var transports = []transport{
	{"grpc", serveGRPC, dialGRPC()},
	{"connect", serveConnect, dialConnect(nil)},
	{"connect json", serveConnect, dialConnect(nil, connect.WithProtoJSON())},
	{"connect as grpc", serveConnect, dialConnect(unencryptedHTTP2(), connect.WithGRPC())},
	{"connect as grpc-web", serveConnect, dialConnect(nil, connect.WithGRPCWeb())},
	{"connect to a client of grpc", serveConnect, dialGRPC()},
}

// each runs a test over each transport.
func each(t *testing.T, test func(*testing.T, transport)) {
	t.Helper()
	t.Parallel()
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			test(t, tr)
		})
	}
}

// start starts a service and returns it with a client.
func (tr transport) start(t *testing.T, change ...func(*config)) (*service, client) {
	t.Helper()
	s := newService(t, change...)
	tr.listen(t, s)
	return s, tr.dial(t, s.addr)
}

func (tr transport) listen(t *testing.T, s *service) {
	t.Helper()
	l := listen(t)
	s.addr = l.Addr().String()
	tr.serve(t, s, l)
}

// --- gRPC

type grpcService struct {
	payv1.UnimplementedPayServiceServer
	*service
}

func (g grpcService) do(ctx context.Context, o *order) (*payv1.ChargeResponse, error) {
	res, err := g.run(ctx, o)
	if o.header != nil {
		if err := grpc.SetHeader(ctx, o.header); err != nil {
			return nil, err
		}
	}
	if o.trailer != nil {
		if err := grpc.SetTrailer(ctx, o.trailer); err != nil {
			return nil, err
		}
	}
	var f *fault
	if errors.As(err, &f) {
		s := status.New(f.code, f.text)
		for _, d := range f.details {
			if s, err = s.WithDetails(protoadapt.MessageV1Of(d)); err != nil {
				return nil, err
			}
		}
		for name, value := range f.meta {
			if err := grpc.SetHeader(ctx, metadata.Pairs(name, value)); err != nil {
				return nil, err
			}
		}
		if f.cause != nil {
			return nil, errors.Join(s.Err(), f.cause)
		}
		return nil, s.Err()
	}
	return res, err
}

func (g grpcService) Charge(ctx context.Context, r *payv1.ChargeRequest) (*payv1.ChargeResponse, error) {
	return g.do(ctx, &order{amount: r.GetAmount(), message: r})
}

func (g grpcService) Refund(ctx context.Context, r *payv1.RefundRequest) (*payv1.ChargeResponse, error) {
	return g.do(ctx, &order{amount: -r.GetAmount(), message: r})
}

func (g grpcService) Quote(ctx context.Context, r *payv1.QuoteRequest) (*payv1.ChargeResponse, error) {
	return g.do(ctx, &order{amount: r.GetAmount(), message: r})
}

func (g grpcService) Watch(_ *payv1.QuoteRequest, s grpc.ServerStreamingServer[payv1.ChargeResponse]) error {
	g.runs.Add(1)
	return s.Send(&payv1.ChargeResponse{ChargeId: "watched"})
}

func (g grpcService) Prices(_ *payv1.QuoteRequest, s grpc.ServerStreamingServer[payv1.ChargeResponse]) error {
	g.runs.Add(1)
	return s.Send(&payv1.ChargeResponse{ChargeId: "priced"})
}

func grpcServer(s *service) *grpc.Server {
	auth := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		defer s.answered()
		return next(withTenant(ctx, metadata.ValueFromIncomingContext(ctx, "x-tenant")), req)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(auth, grpckey.UnaryServerInterceptor(s.guard)),
		grpc.ChainStreamInterceptor(grpckey.StreamServerInterceptor(s.guard)),
	)
	payv1.RegisterPayServiceServer(server, grpcService{service: s})
	return server
}

func serveGRPC(t *testing.T, s *service, l net.Listener) {
	t.Helper()
	server := grpcServer(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
}

type grpcClient struct {
	payv1.PayServiceClient
}

func dialGRPC(options ...grpc.DialOption) func(*testing.T, string) client {
	return func(t *testing.T, addr string) client {
		t.Helper()
		conn, err := grpc.NewClient("passthrough:///"+addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		return grpcClient{payv1.NewPayServiceClient(conn)}
	}
}

func (c grpcClient) call(ctx context.Context, r request) *outcome {
	o := new(outcome)
	if r.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", r.key)
	}
	for _, k := range r.more {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", k)
	}
	for name, value := range r.meta {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	options := []grpc.CallOption{grpc.Header(&o.header), grpc.Trailer(&o.trailer)}
	var err error
	switch m := r.message.(type) {
	case *payv1.ChargeRequest:
		o.res, err = c.Charge(ctx, m, options...)
	case *payv1.RefundRequest:
		o.res, err = c.Refund(ctx, m, options...)
	case *payv1.QuoteRequest:
		o.res, err = c.Quote(ctx, m, options...)
	}
	o.fromStatus(err)
	return o
}

func (o *outcome) fromStatus(err error) {
	if err == nil {
		return
	}
	o.res = nil
	s := status.Convert(err)
	o.code, o.text = s.Code(), s.Message()
	for _, d := range s.Details() {
		if m, ok := d.(proto.Message); ok {
			o.details = append(o.details, m)
		}
	}
}

func (c grpcClient) watch(ctx context.Context, safe bool) *outcome {
	open := c.Watch
	if safe {
		open = c.Prices
	}
	o := new(outcome)
	stream, err := open(ctx, &payv1.QuoteRequest{})
	if err == nil {
		o.res, err = stream.Recv()
	}
	if err == nil {
		_, _ = stream.Recv() // the end
	}
	o.fromStatus(err)
	return o
}

// --- Connect

type connectService struct{ *service }

func (c connectService) do(ctx context.Context, o *order) (*connect.Response[payv1.ChargeResponse], error) {
	res, err := c.run(ctx, o)
	var f *fault
	if errors.As(err, &f) {
		text := error(errors.New(f.text))
		if f.cause != nil {
			text = &fault{text: f.text, cause: f.cause}
		}
		e := connect.NewError(connect.Code(f.code), text)
		for _, d := range f.details {
			detail, err := connect.NewErrorDetail(d)
			if err != nil {
				return nil, err
			}
			e.AddDetail(detail)
		}
		for name, value := range f.meta {
			e.Meta().Set(name, value)
		}
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	out := connect.NewResponse(res)
	for to, from := range map[*http.Header]metadata.MD{ptr(out.Header()): o.header, ptr(out.Trailer()): o.trailer} {
		for name, values := range from {
			for _, value := range values {
				if strings.HasSuffix(name, "-bin") {
					value = connect.EncodeBinaryHeader([]byte(value))
				}
				to.Add(name, value)
			}
		}
	}
	return out, nil
}

func ptr[T any](v T) *T { return &v }

func (c connectService) Charge(ctx context.Context, r *connect.Request[payv1.ChargeRequest]) (*connect.Response[payv1.ChargeResponse], error) {
	return c.do(ctx, &order{amount: r.Msg.GetAmount(), message: r.Msg})
}

func (c connectService) Refund(ctx context.Context, r *connect.Request[payv1.RefundRequest]) (*connect.Response[payv1.ChargeResponse], error) {
	return c.do(ctx, &order{amount: -r.Msg.GetAmount(), message: r.Msg})
}

func (c connectService) Quote(ctx context.Context, r *connect.Request[payv1.QuoteRequest]) (*connect.Response[payv1.ChargeResponse], error) {
	return c.do(ctx, &order{amount: r.Msg.GetAmount(), message: r.Msg})
}

func (c connectService) Watch(_ context.Context, _ *connect.Request[payv1.QuoteRequest], s *connect.ServerStream[payv1.ChargeResponse]) error {
	c.runs.Add(1)
	return s.Send(&payv1.ChargeResponse{ChargeId: "watched"})
}

func (c connectService) Prices(_ context.Context, _ *connect.Request[payv1.QuoteRequest], s *connect.ServerStream[payv1.ChargeResponse]) error {
	c.runs.Add(1)
	return s.Send(&payv1.ChargeResponse{ChargeId: "priced"})
}

// connectHandler is the guarded service of Connect.
func connectHandler(s *service) http.Handler {
	auth := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			defer s.answered()
			return next(withTenant(ctx, r.Header().Values("X-Tenant")), r)
		}
	})
	mux := http.NewServeMux()
	mux.Handle(payv1connect.NewPayServiceHandler(connectService{s}, connect.WithInterceptors(auth, connectkey.Interceptor(s.guard))))
	if s.c.outer != nil {
		return s.c.outer(mux)
	}
	return mux
}

func serveConnect(t *testing.T, s *service, l net.Listener) { serveHTTP(t, connectHandler(s), l) }

func serveHTTP(t *testing.T, h http.Handler, l net.Listener) {
	t.Helper()
	server := &http.Server{Handler: h, Protocols: unencryptedHTTP2(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	server.Protocols.SetHTTP1(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Close(); <-done })
}

func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

type connectClient struct {
	payv1connect.PayServiceClient
}

func dialConnect(protocols *http.Protocols, options ...connect.ClientOption) func(*testing.T, string) client {
	return func(t *testing.T, addr string) client {
		t.Helper()
		h := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		t.Cleanup(h.CloseIdleConnections)
		return connectClient{payv1connect.NewPayServiceClient(h, "http://"+addr, options...)}
	}
}

func (c connectClient) call(ctx context.Context, r request) *outcome {
	prepare := func(h http.Header) {
		if r.key != "" {
			h.Set("Idempotency-Key", r.key)
		}
		for _, k := range r.more {
			h.Add("Idempotency-Key", k)
		}
		for name, value := range r.meta {
			h.Set(name, value)
		}
	}
	var res *connect.Response[payv1.ChargeResponse]
	var err error
	switch m := r.message.(type) {
	case *payv1.ChargeRequest:
		q := connect.NewRequest(m)
		prepare(q.Header())
		res, err = c.Charge(ctx, q)
	case *payv1.RefundRequest:
		q := connect.NewRequest(m)
		prepare(q.Header())
		res, err = c.Refund(ctx, q)
	case *payv1.QuoteRequest:
		q := connect.NewRequest(m)
		prepare(q.Header())
		res, err = c.Quote(ctx, q)
	}
	o := new(outcome)
	if err != nil {
		o.fromConnect(err)
		return o
	}
	o.res, o.header, o.trailer = res.Msg, lower(res.Header()), lower(res.Trailer())
	return o
}

func (o *outcome) fromConnect(err error) {
	var e *connect.Error
	if !errors.As(err, &e) {
		o.code, o.text = codes.Unknown, err.Error()
		return
	}
	o.code, o.text, o.header = codes.Code(e.Code()), e.Message(), lower(e.Meta())
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			o.details = append(o.details, m)
		}
	}
}

func (c connectClient) watch(ctx context.Context, safe bool) *outcome {
	open := c.Watch
	if safe {
		open = c.Prices
	}
	o := new(outcome)
	stream, err := open(ctx, connect.NewRequest(&payv1.QuoteRequest{}))
	if err == nil {
		if stream.Receive() {
			o.res = stream.Msg()
		}
		err = stream.Err()
		stream.Close()
	}
	if err != nil {
		o.fromConnect(err)
	}
	return o
}

func lower(h http.Header) metadata.MD {
	md := metadata.MD{}
	for name, values := range h {
		md[strings.ToLower(name)] = values
	}
	return md
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	return l
}
