// Package grpckey makes unary methods of gRPC servers retry-safe by an idempotency key.
//
//	guard, err := rpckey.New(engine, tenantOf, nil)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(auth, grpckey.UnaryServerInterceptor(guard)),
//		grpc.ChainStreamInterceptor(authStream, grpckey.StreamServerInterceptor(guard)))
//
// The interceptors belong behind those that authenticate, so that a replay is
// authorised like a first call.
//
// What a handler sets by grpc.SetHeader, grpc.SendHeader and grpc.SetTrailer is held
// until the answer is durable, and stored with it. Functions that need the transport's
// own stream, such as grpc.SetSendCompressor, return an error inside a guarded handler;
// call them in an interceptor before this one.
package grpckey

import (
	"context"
	"errors"
	"sync"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/retrysafe/retrysafe/rpckey"
)

// UnaryServerInterceptor returns the interceptor of a guard for unary methods.
func UnaryServerInterceptor(g *rpckey.Guard) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		held := &heldMetadata{method: info.FullMethod}
		c := &rpckey.Call{Procedure: info.FullMethod, Metadata: md.Get, Message: req, Recorded: held.recorded}
		var res any
		var err error
		a := g.Unary(ctx, c, func(ctx context.Context, guarded bool) rpckey.Answer {
			if guarded {
				ctx = grpc.NewContextWithServerTransportStream(ctx, held)
			}
			res, err = handler(ctx, req)
			return answerOf(res, err, held)
		})
		send(ctx, &a)
		switch {
		case !a.Stored:
			return res, err
		case a.Status != nil:
			return nil, status.ErrorProto(a.Status)
		default:
			return a.Message, nil
		}
	}
}

// StreamServerInterceptor returns the interceptor of a guard for streaming methods. It
// refuses them, or lets them pass unguarded, as the guard's options say. Without it
// streams pass.
func StreamServerInterceptor(g *rpckey.Guard) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		a := g.Stream(&rpckey.Call{Procedure: info.FullMethod})
		if a == nil {
			return handler(srv, stream)
		}
		return status.ErrorProto(a.Status)
	}
}

// answerOf returns what a handler has returned, in the terms of the guard.
func answerOf(res any, err error, held *heldMetadata) rpckey.Answer {
	a := rpckey.Answer{Err: err}
	a.Header, a.Trailer = held.recorded()
	if err == nil {
		a.Message, _ = res.(proto.Message)
		return a
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as the server does
	}
	a.Status = s.Proto()
	if a.Status.GetCode() == int32(codepb.Code_OK) { // an error is one, whatever it says of itself
		a.Status.Code = int32(codepb.Code_UNKNOWN)
	}
	return a
}

// send hands the metadata of an answer to the transport. The transport refuses metadata
// that is malformed and a stream whose caller has gone; neither changes the answer.
func send(ctx context.Context, a *rpckey.Answer) {
	if len(a.Header) > 0 {
		_ = grpc.SetHeader(ctx, rpckey.DecodeBinary(a.Header))
	}
	if len(a.Trailer) > 0 {
		_ = grpc.SetTrailer(ctx, rpckey.DecodeBinary(a.Trailer))
	}
}

// heldMetadata is the stream that a guarded handler finds in its context. It holds the
// response metadata back.
type heldMetadata struct {
	method string

	mu      sync.Mutex
	sent    bool // the handler has called SendHeader
	header  metadata.MD
	trailer metadata.MD
}

var _ grpc.ServerTransportStream = (*heldMetadata)(nil)

var errSent = errors.New("grpckey: the header was sent already")

// Method returns the procedure.
func (h *heldMetadata) Method() string { return h.method }

// SetHeader adds to the header.
func (h *heldMetadata) SetHeader(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent {
		return errSent
	}
	h.header = metadata.Join(h.header, md)
	return nil
}

// SendHeader adds to the header for the last time. An answer leaves only when it is
// durable, so nothing is sent yet.
func (h *heldMetadata) SendHeader(md metadata.MD) error {
	if err := h.SetHeader(md); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = true
	return nil
}

// SetTrailer adds to the trailer.
func (h *heldMetadata) SetTrailer(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trailer = metadata.Join(h.trailer, md)
	return nil
}

// recorded returns the metadata so far.
func (h *heldMetadata) recorded() (header, trailer map[string][]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return rpckey.EncodeBinary(h.header), rpckey.EncodeBinary(h.trailer)
}
