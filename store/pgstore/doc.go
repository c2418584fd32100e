// Package pgstore keeps records in PostgreSQL. It is the reference store.
//
// A step is one round trip. Callers that come at the same time travel together
// and share a commit: reservations, settlements and reads have a connection
// each, so that throughput grows with load while the latency of a single caller
// does not. A replay writes nothing and takes no lock.
//
// A step is durable as the server is: [Store.Durability] says what that means.
// A context ends the wait for a turn, never a commit under way: a commit that was
// not confirmed is an error, and the same step sent again recognises itself.
//
// [Store.Tx] and [Store.SQLTx] join a transaction of the caller's, so that
// effects and answer commit together. [Store.BeginTx] begins one for
// [retrysafe.DoTx].
package pgstore
