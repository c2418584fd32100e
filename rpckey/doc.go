// Package rpckey makes unary RPCs retry-safe: the first call under an idempotency key
// runs, every retry gets its answer. It holds what is the same for every transport;
// package connectkey has the interceptor for Connect, package grpckey those for gRPC.
//
//	engine, err := retrysafe.New(store, nil)
//	guard, err := rpckey.New(engine, tenantOf, nil)
//
//	connect.WithInterceptors(auth, connectkey.Interceptor(guard))             // Connect
//	grpc.ChainUnaryInterceptor(auth, grpckey.UnaryServerInterceptor(guard))   // gRPC
//	grpc.ChainStreamInterceptor(auth, grpckey.StreamServerInterceptor(guard))
//
// The key is in the metadata idempotency-key, or in a field of the request message
// ([Options.KeyField]). The handler runs in a context that carries the call's values but
// not its cancellation, and its answer is sent when it is durable. An answer is the
// response message or the status of an error, with headers and trailers. Which errors
// are answers says a table ([Options.Codes]).
//
// A refusal is a status with google.rpc.ErrorInfo, whose domain is [Domain]; one that a
// retry may overcome also has google.rpc.RetryInfo.
//
// Methods that the schema marks NO_SIDE_EFFECTS pass untouched. Streams are refused,
// unless [Options.Streams] lets them pass: a stream has no one answer to store.
package rpckey
