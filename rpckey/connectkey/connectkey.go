// Package connectkey makes unary handlers of Connect retry-safe by an idempotency key.
//
//	guard, err := rpckey.New(engine, tenantOf, nil)
//	path, handler := payv1connect.NewPayServiceHandler(service,
//		connect.WithInterceptors(auth, connectkey.Interceptor(guard)))
//
// The interceptor belongs behind the one that authenticates, so that a replay is
// authorised like a first call. It serves all protocols of a Connect handler: Connect,
// gRPC and gRPC-Web.
//
// On a replay the interceptors before this one get a response whose message is a
// proto.Message with the stored content, and not of the generated type: Connect has no
// way to make a response whose type is known at run time only.
package connectkey

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
)

// Interceptor returns the interceptor of a guard, for handlers. In a client it does
// nothing.
func Interceptor(g *rpckey.Guard) connect.Interceptor { return &interceptor{g} }

type interceptor struct{ guard *rpckey.Guard }

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		var res connect.AnyResponse
		var err error
		set := newCallMetadata(ctx)
		c := callOf(req.Spec())
		c.Metadata = func(name string) []string { return req.Header().Values(name) }
		c.Message, c.Recorded = req.Any(), set.recorded
		a := i.guard.Unary(ctx, c, func(ctx context.Context, _ bool) rpckey.Answer {
			res, err = next(ctx, req)
			return answerOf(res, err, set)
		})
		if !a.Stored {
			if expires := a.Header[rpckey.MetadataExpires]; len(expires) > 0 { // it is stored
				set.header.Set(rpckey.MetadataExpires, expires[0])
			}
			return res, err
		}
		set.replace(a.Header)
		if a.Status != nil {
			return nil, errorOf(&a, req.Peer().Protocol)
		}
		stored := connect.NewResponse(&message{a.Message.ProtoReflect()})
		merge(stored.Trailer(), a.Trailer)
		return stored, nil
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if a := i.guard.Stream(callOf(conn.Spec())); a != nil {
			return errorOf(a, conn.Peer().Protocol)
		}
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// CompleteTx is [rpckey.CompleteTx] for a response with headers and trailers.
func CompleteTx(ctx context.Context, tx retrysafe.Tx, response connect.AnyResponse) error {
	return rpckey.CompleteAnswerTx(ctx, tx, answerOf(response, nil, new(callMetadata)))
}

// callOf returns what the guard has to know of a procedure.
func callOf(spec connect.Spec) *rpckey.Call {
	c := &rpckey.Call{Procedure: spec.Procedure, NoSideEffects: spec.IdempotencyLevel == connect.IdempotencyNoSideEffects}
	c.Method, _ = spec.Schema.(protoreflect.MethodDescriptor)
	return c
}

// message is a response whose type is known at run time only.
type message struct{ m protoreflect.Message }

// ProtoReflect makes it a [proto.Message].
func (m *message) ProtoReflect() protoreflect.Message { return m.m }

// answerOf returns what a handler has returned, in the terms of the guard.
func answerOf(res connect.AnyResponse, err error, set *callMetadata) rpckey.Answer {
	a := rpckey.Answer{Err: err}
	a.Header, a.Trailer = set.recorded()
	if err == nil {
		a.Message, _ = res.Any().(proto.Message)
		add(a.Header, res.Header())
		add(a.Trailer, res.Trailer())
		return a
	}
	coded := codedOf(err)
	a.Status = &statuspb.Status{Code: int32(coded.Code()), Message: coded.Message()}
	for _, d := range coded.Details() {
		a.Status.Details = append(a.Status.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	add(a.Trailer, coded.Meta()) // where gRPC sends it; Connect has it in the header
	return a
}

// codedOf returns a copy of the error that Connect would send for err. It is a copy,
// because the error may be a variable of the program's, and Meta changes it.
func codedOf(err error) *connect.Error {
	var coded *connect.Error
	switch {
	case errors.As(err, &coded):
		c := *coded
		return &c
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		return connect.NewError(connect.CodeUnknown, err)
	}
}

// errorOf returns the error that sends the status of an answer.
func errorOf(a *rpckey.Answer, protocol string) error {
	e := connect.NewError(connect.Code(a.Status.GetCode()), errors.New(a.Status.GetMessage()))
	for _, packed := range a.Status.GetDetails() {
		if d, err := connect.NewErrorDetail(packed); err == nil {
			e.AddDetail(d)
		}
	}
	merge(e.Meta(), a.Trailer)
	if pushback := e.Meta().Get(pushbackHeader); pushback != "" && protocol == connect.ProtocolConnect {
		ms, _ := strconv.Atoi(pushback)
		e.Meta().Set("Retry-After", strconv.Itoa((ms+999)/1000))
		e.Meta().Del(pushbackHeader)
	}
	return e
}

// pushbackHeader is how a server of gRPC says when to retry. A client of the Connect
// protocol knows Retry-After.
const pushbackHeader = "Grpc-Retry-Pushback-Ms"

// callMetadata is the response metadata that a handler sets through its context.
type callMetadata struct {
	header, trailer             http.Header // as the transport sends them
	headerBefore, trailerBefore http.Header // what interceptors before this one have set
}

func newCallMetadata(ctx context.Context) *callMetadata {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok { // in a test of the program's own, which calls the interceptor itself
		return &callMetadata{header: make(http.Header)}
	}
	m := &callMetadata{header: info.ResponseHeader(), trailer: info.ResponseTrailer()}
	m.headerBefore, m.trailerBefore = m.header.Clone(), m.trailer.Clone()
	return m
}

// recorded returns what was set since.
func (m *callMetadata) recorded() (header, trailer map[string][]string) {
	return since(m.header, m.headerBefore), since(m.trailer, m.trailerBefore)
}

// replace replaces what was set since by the header of another answer.
func (m *callMetadata) replace(header map[string][]string) {
	clear(m.trailer)
	maps.Copy(m.trailer, m.trailerBefore)
	clear(m.header)
	maps.Copy(m.header, m.headerBefore)
	merge(m.header, header)
}

// since returns the values that are in a header and were not in it before.
func since(now, before http.Header) map[string][]string {
	out := make(map[string][]string)
	for name, values := range now {
		if old := len(before[name]); len(values) > old && slices.Equal(values[:old], before[name]) {
			out[strings.ToLower(name)] = slices.Clone(values[old:])
		} else if !slices.Equal(values, before[name]) {
			out[strings.ToLower(name)] = slices.Clone(values)
		}
	}
	return out
}

// add adds the values of a header to metadata.
func add(to map[string][]string, h http.Header) {
	for name, values := range h {
		name = strings.ToLower(name)
		to[name] = append(slices.Clip(to[name]), values...)
	}
}

// merge sets metadata in a header.
func merge(to http.Header, from map[string][]string) {
	for name, values := range from {
		to[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
}
