// Package outbox makes effects happen if, and only if, a transaction commits.
//
// A [Message] is enqueued inside the caller's own transaction, on a store that shares
// its database. A [Worker] delivers it afterwards, outside of any transaction, through
// a [Sink]: at least once, with the same bytes and the same key on every try, in the
// order of its group. What cannot be delivered becomes a dead letter, for an operator
// (package operator); nothing is ever dropped.
//
//	tx, pgtx, err := store.BeginTx(ctx)
//	// ... business writes on pgtx
//	err = tx.(outbox.Enqueuer).Enqueue(ctx, outbox.Message{Topic: "payment.created", Group: account, Payload: event})
//	err = tx.Commit(ctx)
//
// A message may also be what answers a request: [retrysafe.Execution.HandOver] gives it
// the request's key, and the step that ends the message settles the key with what the
// receiver said. Until then retries are told that the request is accepted.
//
// Messages are divided into [Shards] by their group. A worker leases shards under an
// epoch, and can end messages of a shard only while that epoch is the latest, so that
// one who was stopped for too long ends nothing. Any number of workers may run, in any
// number of processes; the store is polled, which finds what committed late too, and
// [Worker.Wake] saves the wait.
package outbox
