// Package move moves all records of one store into another while the first one serves.
// There is no moment in which a key could run in both stores, or is unknown to both.
//
//	report, err := move.Records(ctx, from, to, &move.Options{From: "sqlite:keys.db", To: "postgres://db/keys"})
//
// Both stores are the ones below any seal or cache: a move copies sealed bytes as they
// are. The processes that use the stores take no part in the move.
//
// # Steps
//
//  1. Follow: the source logs every key that is written from now on, in the transaction
//     that writes it.
//  2. Fill: the destination, which must be empty, is closed, unless [Prepare] has closed it
//     before. It may hold the identity of a deployment, because a gateway was started on
//     it beforehand.
//  3. Copy: all records are copied page by page, then those that were written meanwhile,
//     until few are left. Up to here clients notice nothing.
//  4. Retire, the cut: the source locks out all writers, and the remaining records are
//     copied. In the same transaction the source is closed for good.
//  5. Filled: the destination is opened.
//
// A database is closed by renaming its tables. No statement finds them then, not even one
// that a process has prepared before. So the engine refuses with a 503, and nothing runs.
// A note in the store says where the records are, and every error repeats it.
//
// # Why no key runs twice
//
// A key runs where its record is written. So it is enough that the two stores are never
// open at the same time, and that the open one holds every record that was confirmed.
//
//   - Never both open: the destination is closed before it gets its first record, and
//     opened only after the transaction that closed the source has committed. In between
//     both are closed.
//   - Every confirmed record: Follow waits for all open transactions that write, so the
//     pages show what was written before it, and the log has what is written after it. A
//     logged key is read after it was logged. During the cut there is no writer, so the
//     log is complete. The source closes only if the destination has confirmed all of
//     it. A transaction that had not committed before the cut cannot commit after it.
//
// A record that was in flight at the cut moves as it was. Its owner can settle it in
// neither store. At the destination its lease lapses, and its own policy says what
// becomes of it, as if its process had been killed. Accepted work moves with its request.
// Messages of an outbox do not move: a source whose outbox is not empty is not retired.
//
// # Why a run may be killed at any time, and repeated
//
//   - Killed before the cut has committed: the source serves on, and the destination is
//     closed. The next run empties the destination and starts over, so no stale copy
//     remains.
//   - Killed after it: the source has the run that retired it, and the destination the
//     run that fills it. If they are the same run, all records are there, and the next
//     run opens the destination.
//   - One run at a time: Follow and Fill replace the previous run, and every later step
//     names its run. So a run that was believed dead neither retires nor imports
//     anything.
//   - The records in a destination may be the only ones, once the source is retired. They
//     are deleted only for a run of the same source, and a source that could be followed
//     is not retired.
//   - If it is unknown whether the cut has committed, nothing is undone.
//
// # Stores without transactions
//
// Redis and DynamoDB close no table, and have no transaction over all of their data. There
// one text, the note, decides, and is changed by compare-and-swap ([storemove.Kept]). Each
// run has a number, and the note names the run that may go on.
//
//   - Retire first notes the cut, then locks out the writers, copies the rest, and notes
//     last that the store is moved. That note is written only if the cut is still this
//     run's and not over. If the mover is killed, the cut is over after ten seconds, and
//     any process that meets it notes that the store stays. So one of the two is noted, and
//     never both.
//   - Redis: the mark of each bucket, which every script reads first, says that the bucket
//     is followed or closed, and by which run. A process that finds a bucket closed reads
//     the note, and opens the bucket if the note says that this run is over. A late command
//     of an old run has an old number, and changes nothing.
//   - DynamoDB: a process takes steps with a permit, which it gets by reading the note, and
//     reports no outcome without one. The mover waits until all permits from before the
//     note have ended. A step that is carried out later is reported to no caller, and
//     nothing runs by it. What was written is found by its revision, in a pass over the
//     table within the cut.
//
// # What is kept
//
// Every field of a record, and the time until its deadline by the destination's clock. A
// revision or an UpdatedAt that lies in the destination's future becomes the
// destination's now. The records of retrysafe itself, such as the audit of operators'
// actions, move too. So does the identity of the deployment, by which a gateway accepts
// the destination in a reload. A record that cannot be read stops the move, because its
// key would be free at the destination.
package move
