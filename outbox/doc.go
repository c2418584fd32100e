// Package outbox makes effects happen if, and only if, a transaction commits.
//
// A [Message] is enqueued inside the caller's own transaction, on a store that shares
// its database. A [Worker] delivers it afterwards, outside of any transaction, through
// a [Sink]: at least once, with the same bytes and the same key on every try, in the
// order of its group. A message that cannot be delivered becomes a dead letter, which an
// operator handles (package operator). No message is ever dropped.
//
//	tx, pgtx, err := store.BeginTx(ctx)
//	// ... business writes on pgtx
//	err = tx.(outbox.Enqueuer).Enqueue(ctx, outbox.Message{Topic: "payment.created", Group: account, Payload: event})
//	err = tx.Commit(ctx)
//
// The delivery of a message may also give the answer to a request:
// [retrysafe.Execution.HandOver] hands the request's key to the message, and the step
// that acknowledges the message settles the key with the receiver's answer. Until then
// retries are told that the request is accepted.
//
// Messages are divided into [Shards] by their group. A worker leases shards under an
// epoch, and can acknowledge messages of a shard only while that epoch is the latest.
// The epoch is the fence: the acknowledgements of a worker that was stopped for longer
// than its lease are refused. Any number of workers may run, in any number of processes.
// They poll the store, which also finds messages that were committed late;
// [Worker.Wake] saves the wait for the next poll.
package outbox
