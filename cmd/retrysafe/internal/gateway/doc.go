// Package gateway is one configuration at work: a reverse proxy that makes the POSTs
// of any service retry-safe.
//
//	g, err := gateway.New(c, gateway.Parts{Store: store})
//	err = g.Run(ctx) // workers and janitor, beside the server that g is the handler of
//
// A request that no route guards goes to the upstream as it came. A guarded one is
// read whole, runs at most once per key, and its answer is stored before it is sent.
//
// # What an attempt proves
//
// The upstream is another process, so what became of an attempt is judged by what is
// proven, and by nothing else:
//
//   - There was no connection to send it on, or the connection accepted no byte of it: it
//     was not executed. The key is free again, and the client is told to send the same
//     request once more.
//   - An answer came to its clean end: it is the outcome, by its status. One without a
//     length that ends with its connection is whole, as HTTP has it.
//   - Anything else (a reset, a time-out, an answer that cannot be read or is cut off):
//     it may have been executed. Where the upstream honours the key that it was sent
//     (keyed) the next request with this key sends the same bytes under the same key;
//     otherwise the outcome is unknown, and it is not sent again.
//
// The gateway itself never sends a request twice. A client's retry does, where it may.
//
// # What the upstream gets
//
// The client's key does not reach it, unless the route forwards it or a key derived
// from it. X-Forwarded-For is the client's address, behind what a trusted proxy says;
// X-Forwarded-Host and -Proto are what the client, or that proxy, used. Host is the
// client's for an upstream that is spoken to by http, and the upstream's own by https,
// where certificates and virtual hosts go by it. A header that names the tenant is
// passed on from trusted proxies only.
//
// # Limits
//
// The number of requests at the upstream, per route and per tenant, is checked before a
// key is reserved, so that a refused request leaves no record. Replays are never
// refused. The slot itself is acquired after the reservation, so that retries that wait
// for the first attempt hold none. If no slot is left by then, the reservation is
// released. Requests that are run later wait for a worker instead.
//
// Everything below /.retrysafe/ is the gateway's own.
package gateway
