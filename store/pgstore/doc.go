// Package pgstore keeps records in PostgreSQL. It is the reference store.
//
// A step is one round trip. Steps that come at the same time share a batch and its
// commit: reservations, settlements and reads are batched separately, with a connection
// each. So throughput grows with the load, while a single caller waits for no other. A
// replay writes nothing and takes no lock.
//
// A step is as durable as the server's settings make it: see [Store.Durability]. If a
// context ends while the step waits for its batch, the step was not sent. A commit that is
// under way is never cancelled: if it was not confirmed the step returns an error, and the
// same step sent again recognises itself.
//
// [Store.Tx] and [Store.SQLTx] join a transaction of the caller's, so that effects and
// answer commit together. [Store.BeginTx] begins one for [retrysafe.DoTx].
//
// docs/pgstore-internals.md explains how the package works inside.
package pgstore
