// Package retrysafe makes an operation safe to retry.
//
// A client that sends a request and loses the answer cannot know whether it
// happened. With retrysafe the first attempt under a key runs, every retry gets
// its answer byte for byte, and an outcome that cannot be known is set aside for
// reconciliation, never guessed.
//
// There are only a few ideas:
//
//   - A [Record] is all that is known of one key.
//   - A [Store] keeps records: insert, compare-and-swap, read, list what is due,
//     delete what has expired. Each is one atomic step; a store decides nothing.
//   - Every rule (replay, conflict, mismatch, quarantine, resume) is one pure
//     function, decide, tested without a database.
//   - An [Engine] is a store and a [Policy]. [Engine.Begin] answers a call with
//     exactly one of: an [Execution], an [Outcome] to replay, an error.
//   - An [Execution] is the right to run one operation. One swap settles it:
//     [Execution.Complete], [Execution.CompleteTx], [Execution.Release] or
//     [Execution.Quarantine].
//
// The revision of a record is the fence: it never repeats, so a late write of a
// former owner loses its swap. Safety rests on it and never on a clock; clocks
// only decide when to suspect an owner, and the clock that counts is the
// store's.
//
// A fence protects the record, not the outside world. So a policy declares what
// the operation's effects are ([Effects]), and a policy that could repeat an
// unprotected effect is refused when the engine is built.
//
// Package httpkey implements the Idempotency-Key header of HTTP on top of this one.
package retrysafe
