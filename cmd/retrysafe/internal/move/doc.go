// Package move moves the records of one store into another, for those who outgrow
// one machine, while the first one serves: there is no moment in which a key could
// run in both or be unknown to both.
//
//	report, err := move.Records(ctx, from, to, &move.Options{From: "sqlite:keys.db", To: "postgres://db/keys"})
//
// The two are stores as they are, below any seal or cache, whose bytes are opaque
// here. Whoever uses them, in whatever process, needs to know nothing of this.
//
// # How
//
//  1. Follow: the source notes every key that is written from now on, in the
//     transaction that writes it.
//  2. Fill: the destination, which must be empty, is closed.
//  3. Copy: every record, page by page; then those that were written meanwhile, until
//     they are few. Until here nobody notices anything.
//  4. Retire, the cut: the source lets nobody write. The last few are copied. Then the
//     source is closed for good, in the same transaction.
//  5. Filled: the destination is opened.
//
// A store is closed by taking its tables away under the names that every process
// knows: no step finds them, whoever takes it, with whatever statement it prepared
// when; so the engine refuses with a 503, and nothing runs. A note beside them says
// where the records are, and every error repeats it.
//
// # Why no key runs twice
//
// A key runs where its record is written, so it is enough that never two stores are
// open, and that the one that is open holds all that was ever confirmed.
//
//   - Never two: the destination is closed before the first record is in it, and
//     opened only after the transaction that closed the source has committed. Between
//     the two both are closed.
//   - All that was confirmed: Follow waits for every open transaction of a writer, so
//     what was written before it is seen by the pages, and what is written after it is
//     noted. A key that is noted is read again later than it was noted. In the cut no
//     writer is left, so the notes are complete; the source closes only if the
//     destination has confirmed all of them. What a transaction had not committed
//     before the cut it cannot commit after it.
//
// What was in flight at the cut moves as it was. Its owner cannot settle it any more,
// in either store; at the destination its lease lapses, and then its own policy says
// what becomes of it, as if its process had been killed. Work that was accepted moves
// with its request. Messages of an outbox do not move: a source whose outbox is not
// empty is not retired.
//
// # Why it may be killed at any time, and run again
//
//   - Before the cut has committed, the source serves on, and the destination is
//     closed. The next run empties it and begins anew, so that no stale copy is left.
//   - After it, the source names the run that retired it, and the destination the run
//     that fills it. If they are the same all is there, and the next run opens it.
//   - One run at a time: Follow and Fill take over from whoever did before, and each
//     further step names its run. So a run that was believed dead and is not retires
//     and imports nothing.
//   - What fills a destination cannot be thrown away by mistake, though nobody else
//     has it once its source is retired: only the same source, which is not retired if
//     it could just be followed, may begin anew.
//   - If nobody can say whether the cut has committed, nothing is undone.
//
// # What it keeps
//
// Everything of a record, and the time that is left until its deadline, by whatever
// clock the destination has. Only a revision or UpdatedAt that lies in the
// destination's future becomes its now. Records of retrysafe itself, such as the
// operators' audit, move too. A record that cannot be read cannot move: its key would
// be free at the destination. It stops the move.
package move
