// Package httpkey makes handlers of net/http retry-safe by the Idempotency-Key
// header.
//
//	engine, err := retrysafe.New(store, nil)
//	guard, err := httpkey.New(engine, tenantOf, nil)
//	mux.Handle("POST /payments", guard.Handler(createPayment))
//
// The first request under a key runs the handler; every retry gets the stored
// status, headers and exact bytes. The response reaches the client only after it
// is durable, and the handler runs in a context that outlives the client's
// connection, so a client that hangs up loses nothing but the line.
//
// # What a handler may do
//
//   - Write and io.Copy: the body is held until it is durable, up to
//     [Options.MaxResponse]. Beyond it the outcome is stored without the body,
//     then the body streams to the first client; a retry learns that the request
//     was executed, with the stored status and Location, and never runs it again.
//     Where the effects are in a transaction a success must be held: one that is
//     over the limit or streamed fails the attempt, before anything is committed.
//   - Flush: held by default. With [StreamThrough] the outcome is stored without a body
//     and the stream begins.
//   - WriteHeader with 1xx: sent at once to the first client, never replayed.
//   - 204, 304: as net/http has them, without a body.
//   - Trailers: sent and replayed.
//   - Hijack: refused; a hijacked connection cannot be answered again.
//   - http.ResponseController: deadlines and full duplex reach the connection.
//   - Set-Cookie and other headers outside the allow-list: sent to the first
//     client, never stored.
//   - Panic: the attempt is settled by what its effect mode proves, and the client
//     gets a 500. http.ErrAbortHandler is settled and goes on.
//
// # Requests that are run later
//
// With [Options.Async] a request is stored, and a [Worker] runs the same handler,
// in this process or in another, and settles it the same way. [Guard.Status] is
// where a client looks meanwhile. No client is connected while the handler runs: what is
// not stored of a response is lost, and what was not stored of the request (other
// headers, trailers, the remote address, values in its context) is missing.
// [Options.Restore] restores the authenticated caller.
package httpkey
