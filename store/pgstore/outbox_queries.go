package pgstore

import "slices"

// The statements of the outbox. Each that a worker sends is one statement with all that
// the worker has to say: a worker that is stopped while it sends one holds no lock.

const (
	// No line is as low or as high as these.
	lowest, highest = `-9223372036854775807`, `9223372036854775807`

	enqueueMessages = `
-- Stores messages in the transaction of the caller's: they exist if it commits.
INSERT INTO {outbox} (shard, line, due, enqueued, body)
SELECT u.shard, u.line, c.now + u.wait, c.now, u.body
  FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[]) u (shard, line, wait, body), (SELECT {now} AS now) c`

	selectDue = `
-- Reads shards and messages of one moment. It takes no lock: the end of a message
-- compares the shard's epoch again.
--
-- Each line, which is a group, is read from its beginning. A message that waits to be
-- sent again is a wall: of its line only what is before it is read, and then all lines
-- up to the next wall. The walk goes through the lines of each shard in two legs, from a
-- line that differs each time, $3, so that no line is always the last. A leg ends at the
-- $5th message that has failed, so that a walk is short also when everything fails; the
-- rest is found from other beginnings. What is before a wall is read backwards from it,
-- a range that no other index has, and that ends with the line.
--
-- A message of a group has no delay of its own, so its due time counts only once it has
-- failed: a clock that is set back cannot let another message overtake it.
--
-- Messages without a group come by when they are due, before the others or after them,
-- as $6 says. Bodies of more than $7 bytes in all are left for the next read.
WITH held AS MATERIALIZED (
SELECT s.n, u.at FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY u (n, epoch, at) JOIN {shards} s ON s.n = u.n AND s.epoch = u.epoch),
legs AS MATERIALIZED (
SELECT h.n, h.at, l.leg, l.first, l.last
  FROM held h CROSS JOIN (VALUES (1, $3::bigint, ` + highest + `), (2, ` + lowest + `, $3 - 1)) l (leg, first, last)
 WHERE l.first <= l.last),
walls AS (
SELECT l.n, l.at, l.leg, l.last, l.first AS line, 0 AS id, l.first AS next, true AS opens, false AS wall FROM legs l
UNION ALL
SELECT l.n, l.at, l.leg, l.last, f.line, f.id, f.line + 1, f.k < $5, f.due > {now}
  FROM legs l CROSS JOIN LATERAL (
       SELECT f.line, f.id, f.due, row_number() OVER (ORDER BY f.line, f.id) AS k
         FROM (SELECT m.line, m.id, m.due FROM {outbox} m
                WHERE m.shard = l.n AND m.line <> 0 AND m.tries > 0 AND m.line >= l.first AND m.line <= l.last
                ORDER BY m.shard, m.line, m.id LIMIT $5) f) f
 WHERE f.due > {now} OR f.k = $5),
gaps AS MATERIALIZED (
SELECT w.n, w.at, w.leg, w.next, lead(w.line - 1, 1, w.last) OVER walk AS last, w.opens,
       w.line, w.id, w.wall AND (lag(w.wall) OVER walk IS NOT TRUE OR lag(w.line) OVER walk <> w.line) AS wall
  FROM walls w WINDOW walk AS (PARTITION BY w.leg, w.at ORDER BY w.line, w.id)),
lines AS (
SELECT m.* FROM (SELECT * FROM gaps ORDER BY leg, at OFFSET 0) g CROSS JOIN LATERAL (
       (SELECT * FROM (SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM {outbox} m
                        WHERE g.wall AND m.shard = g.n AND m.line <> 0 AND m.line >= g.line AND (m.line, m.id) < (g.line, g.id)
                        ORDER BY m.shard DESC, m.line DESC, m.id DESC OFFSET 0) m
         ORDER BY m.id LIMIT $4)
       UNION ALL
       (SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM {outbox} m
         WHERE g.opens AND m.shard = g.n AND m.line <> 0 AND m.line >= g.next AND m.line <= g.last
         ORDER BY m.shard, m.line, m.id LIMIT $4)) m LIMIT $4)
SELECT id, shard, tries, enqueued, body, {now} FROM (
       SELECT *, sum(octet_length(body)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (
              (SELECT m.* FROM {ungrouped} WHERE $6 LIMIT $4)
              UNION ALL
              SELECT * FROM lines
              UNION ALL
              (SELECT m.* FROM {ungrouped} WHERE NOT $6 LIMIT $4)
              LIMIT $4) m) m
 WHERE size - octet_length(body) < $7`

	ungroupedMessages = `(SELECT * FROM held ORDER BY at OFFSET 0) h CROSS JOIN LATERAL (
                      SELECT m.id, m.shard, m.tries, m.enqueued, m.body FROM {outbox} m
                       WHERE m.shard = h.n AND m.line = 0 AND m.due <= {now} ORDER BY m.shard, m.due LIMIT $4) m`

	selectFirst = `
-- Reads the oldest messages of one moment, at most $6, without those that the worker has:
-- the ids of $3, and those above $4 whose byte in $5 is not 0. It takes no lock: the end of
-- a message compares the shard's epoch again.
--
-- It always begins with the lowest id: a message may be committed after others with higher
-- ids. Of the messages that it looks at, those of other shards, those that are kept back,
-- and those of groups in which a message has failed come without their bodies: "due" reads
-- the groups that have failed. The first row says whether a message of such a group is
-- due, or NULL if more than $7 messages have failed: then no other row follows.
WITH mask AS MATERIALIZED (
SELECT coalesce(bit_or(1::bigint << s.n), 0) AS held
  FROM unnest($1::smallint[], $2::bigint[]) u (n, epoch) JOIN {shards} s ON s.n = u.n AND s.epoch = u.epoch),
failed AS MATERIALIZED (
SELECT m.line, m.line <> 0 AND m.due <= {now} AS due FROM {outbox} m WHERE m.tries > 0 AND m.id > 0 LIMIT $7 + 1),
state AS MATERIALIZED (SELECT CASE WHEN count(*) <= $7 THEN coalesce(bool_or(due), false) END AS left FROM failed)
SELECT NULL::bigint, NULL::smallint, NULL::integer, NULL::bigint, NULL::bytea, {now}, state.left FROM state
UNION ALL
{oldest}`

	// oldestMessages are the rows of selectFirst. A body that is larger than $8 bytes comes
	// as NULL, and its row says so.
	oldestMessages = `SELECT id, shard, tries, enqueued, CASE WHEN goes AND octet_length(body) <= $8 THEN body END, {now}, goes AND octet_length(body) > $8 FROM (
       {walk}) m`

	// oldestLarge are the same for large bodies: those of more than $8 bytes in all are left
	// for the next read.
	oldestLarge = `SELECT id, shard, tries, enqueued, CASE WHEN goes THEN body END, {now}, false FROM (
       SELECT *, sum(CASE WHEN goes THEN octet_length(body) ELSE 0 END) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (
       {walk}) m) m
 WHERE size - octet_length(body) < $8`

	walkOldest = `SELECT m.id, m.shard, m.tries, m.enqueued, m.body,
              ((SELECT held FROM mask) >> m.shard) & 1 = 1 AND CASE WHEN m.line = 0 THEN m.due <= {now} ELSE m.line NOT IN (SELECT line FROM failed) END AS goes
         FROM {outbox} m
        WHERE m.id > 0 AND m.id NOT IN (SELECT unnest($3::bigint[])) AND (SELECT state.left IS NOT NULL FROM state)
          AND CASE WHEN m.id > $4 AND m.id <= $4 + octet_length($5::bytea) THEN get_byte($5::bytea, (m.id - $4 - 1)::integer) = 0 ELSE true END
        ORDER BY m.id LIMIT $6`

	// fence locks the rows of the shards that the worker holds. A worker that has this lock
	// ends its transaction before the shard's epoch can change, and one that has waited here
	// for a change sees the new epoch.
	fence = `held AS MATERIALIZED (
SELECT s.n FROM unnest({held shards}) u (n, epoch) JOIN {shards} s ON s.n = u.n AND s.epoch = u.epoch FOR KEY SHARE OF s),
mask AS MATERIALIZED (SELECT coalesce(bit_or(1::bigint << held.n), 0) AS held FROM held),
`

	deleteMessages = `
-- Ends messages that were delivered, if their shards' epochs are the worker's. The shards
-- are locked before the messages are deleted, in one statement.
WITH {fence}gone AS (DELETE FROM {outbox} m USING unnest($3::bigint[], $4::smallint[]{receipt arrays}) e (id, shard{receipt columns})
          WHERE m.id = e.id AND m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1{receipts of e}){kept}
SELECT held FROM mask`

	deleteRange = `
-- Ends messages that were delivered and have most of the ids from $3 + 1 on, if their
-- shards' epochs are the worker's. It deletes those whose byte in $4 is the number of their
-- shard, and no others. The range lets the server read them one behind the other. The
-- shards are locked before the messages are deleted, in one statement.
WITH {fence}gone AS (DELETE FROM {outbox} m
          WHERE m.id > $3 AND m.id <= $3 + octet_length($4::bytea) AND get_byte($4::bytea, (m.id - $3 - 1)::integer) = m.shard
            AND ((SELECT held FROM mask) >> m.shard) & 1 = 1)
SELECT held FROM mask`

	endMessages = `
-- Ends messages in any way: delivered, to be sent again, or dead. The first $21 of them
-- settle a key in the same statement, so message and key commit together; if the key's
-- fence refuses the swap, the message does not end. The parameters up to $11 are those of
-- the swap. IS TRUE keeps the server from comparing each row with each.
WITH {fence}e AS MATERIALIZED (
SELECT e.* FROM unnest($14::bigint[], $15::smallint[], $16::smallint[], $17::integer[], $18::bigint[], $19::bytea[], $20::bytea[]{receipt arrays})
       WITH ORDINALITY e (id, shard, fate, sent, after, why, ref{receipt columns}, n) JOIN {outbox} m ON m.id = e.id
 WHERE {admit} FOR UPDATE OF m),
swapped AS ({swap}),
go AS MATERIALIZED (SELECT e.* FROM e WHERE e.n > $21 OR e.n IN (SELECT n FROM swapped)),
again AS (UPDATE {outbox} m SET tries = greatest(m.tries, g.sent), due = {now} + g.after, why = g.why,
                 provider_ref = CASE WHEN g.ref = '' THEN m.provider_ref ELSE g.ref END
            FROM go g WHERE m.id = g.id AND g.fate = 2),
gone AS (DELETE FROM {outbox} m USING go g WHERE m.id = g.id AND g.fate <> 2
      RETURNING m.id, m.line, m.enqueued, m.tries, m.shard, m.body, m.provider_ref, g.fate, g.sent, g.why, g.ref{receipts of g}),
buried AS (INSERT INTO {dead} (id, line, enqueued, died, revision, tries, shard, body, why, provider_ref)
SELECT id, line, enqueued, {now}, {now}, greatest(tries, sent), shard, body, why, CASE WHEN ref = '' THEN provider_ref ELSE ref END FROM gone WHERE fate = 3){kept}
SELECT 0::bigint, held, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint FROM {held}
UNION ALL
SELECT * FROM swapped
UNION ALL
SELECT n, NULL, NULL, NULL, NULL, NULL, NULL FROM e WHERE n <= $21 AND n NOT IN (SELECT n FROM swapped)`

	// onlyEnding lets a swap happen only for messages that end.
	onlyEnding = `
   AND (u.n IN (SELECT e.n FROM e)) IS TRUE`

	leaseTurn = `
-- Lets leases take turns. It is a statement before the lease, so that the lease's
-- snapshot sees what the last one has committed.
SELECT pg_advisory_xact_lock(8027225894302051443 # {shards_id}::bigint)`

	waitForTurn = `
-- Lets the transaction wait longer for its turn than the session does for a lock.
SELECT set_config('lock_timeout', '4s', true)`

	countWorker = `
-- Adds the worker to those that are counted, or renews it. In the lease's transaction.
INSERT INTO {workers} AS w (worker, until) VALUES ($1::uuid, {now} + $2::bigint)
    ON CONFLICT (worker) DO UPDATE SET until = excluded.until`

	shortenTerms = `
-- Shortens terms that were written before the clock was set back, so that the shards of
-- a dead worker are not held until the clock has passed them again. A term beyond an hour,
-- and beyond ten of the caller's, is such a one. A live worker renews its own. In the
-- lease's transaction.
WITH c AS MATERIALIZED (SELECT {now} + greatest(10 * $1::bigint, 3600000000) AS latest),
w AS (UPDATE {workers} w SET until = c.latest FROM c WHERE w.until > c.latest)
UPDATE {shards} s SET until = c.latest FROM c WHERE s.until > c.latest`

	forgetWorkers = `
-- Deletes workers whose term has ended. In the lease's transaction.
DELETE FROM {workers} WHERE until <= {now}`

	leaseShards = `
-- Divides the shards among the workers. A worker takes shards only from a holder whose
-- term has ended, and gives up those above its share. Each change of holder raises the
-- epoch, which is the fence of a shard. Leases take turns: see "turn". The worker counts
-- itself also if its own term, just written, has already ended.
WITH c AS MATERIALIZED (SELECT {now} AS now, greatest(count(*), 1) AS workers FROM {workers}),
share AS MATERIALIZED (SELECT c.now, c.workers, CASE WHEN $2::bigint > 0 THEN (63 + c.workers) / c.workers ELSE 0 END AS most FROM c),
mine AS MATERIALIZED (
SELECT s.n, row_number() OVER (ORDER BY s.n) <= h.most AS stays FROM {shards} s, share h WHERE s.worker = $1::uuid AND s.until > h.now),
free AS MATERIALIZED (
SELECT s.n, row_number() OVER (ORDER BY s.n) + (SELECT count(*) FROM mine WHERE stays) <= h.most AS goes FROM {shards} s, share h WHERE s.until <= h.now),
changed AS (UPDATE {shards} s SET
       worker = $1::uuid, epoch = s.epoch + x.taken, until = CASE WHEN x.held THEN h.now + $2::bigint ELSE h.now END
  FROM (SELECT n, stays AS held, 0 AS taken FROM mine UNION ALL SELECT n, true, 1 FROM free WHERE goes) x, share h
 WHERE s.n = x.n
RETURNING s.n, s.epoch, x.held)
SELECT h.workers, x.n, x.epoch FROM share h LEFT JOIN changed x ON x.held ORDER BY x.n`

	letterColumns = `m.id, m.shard, m.tries, m.enqueued, m.body, {now}, m.why, m.provider_ref`

	selectFailing = `
-- Reads messages that have failed and wait to be sent again. One snapshot.
SELECT ` + letterColumns + `, 0::bigint, m.tries::bigint FROM {outbox} m WHERE m.tries > 0 AND m.id > 0 AND m.due > {now} AND m.id > $1 ORDER BY m.id LIMIT $2`

	selectDead = `
-- Reads dead letters. One snapshot.
SELECT ` + letterColumns + `, m.died, m.revision FROM {dead} m WHERE m.id > $1 ORDER BY m.id LIMIT $2`

	selectWaits = `
-- Says whether a message is there. One snapshot.
SELECT 1 FROM {outbox} WHERE id = $1`

	selectLetter = `
-- Says whether a dead letter is there, after "dispose" and in its transaction.
SELECT 1 FROM {dead} WHERE id = $1`

	disposeLetter = `
-- Deletes a dead letter if its revision is $2, and enqueues its message again if $3 says
-- so, in one statement. The message is behind all others then, and as old as it was,
-- because the receiver may have forgotten its key; unless the operator vouches for that,
-- $4.
WITH letter AS (DELETE FROM {dead} WHERE id = $1 AND revision = $2 RETURNING *),
again AS (INSERT INTO {outbox} (shard, line, due, enqueued, body, why, provider_ref)
SELECT shard, line, {now}, CASE WHEN $4 THEN {now} ELSE enqueued END, body, why, provider_ref FROM letter WHERE $3)
SELECT 1 FROM letter`

	selectDepth = `
-- Counts messages, up to $1. Of more the server's statistics say how many, and the oldest
-- is among the first $1 or has no group. One snapshot.
WITH first AS MATERIALIZED (SELECT m.due FROM {outbox} m WHERE m.id > 0 ORDER BY m.id LIMIT $1)
SELECT (SELECT count(*) FROM first),
       (SELECT greatest(CASE WHEN s.live > 0 THEN s.live ELSE c.reltuples::bigint END, $1) FROM pg_class c, pg_stat_get_live_tuples(c.oid) s (live) WHERE c.oid = {outbox_id}),
       least((SELECT min(due) FROM first),
             (SELECT min(f.due) FROM {shards} s CROSS JOIN LATERAL (
                     SELECT m.due FROM {outbox} m WHERE m.shard = s.n AND m.line = 0 ORDER BY m.shard, m.due LIMIT 1) f)),
       (SELECT count(*) FROM {dead} d WHERE d.id > 0),
       (SELECT d.died FROM {dead} d ORDER BY d.died LIMIT 1), {now}`
)

// outboxStatements are the outbox's SQL, for one schema.
type outboxStatements struct {
	due, first, firstLarge, ended, endedRange    statement
	end, endUnlocked, skip                       statement
	endedKept, endKept, endKeptUnlocked          statement // with receipts
	turn, wait, count, forget, shorten, lease    statement
	failing, dead, waits, letter, dispose, depth statement
	receipts, receiptsOfKey, receiptsOfRef       statement
	forgetReceipts, purgeReceipts                statement
	tx                                           outboxTxStatements
}

// outboxTxStatements are for transactions of the caller's.
type outboxTxStatements struct{ enqueue statement }

func newOutboxStatements(schema string) (s outboxStatements) {
	tables := outboxNames(schema)
	names := tableNames(schema, "{outbox_id}", literal(tables[0])+"::regclass::oid", "{shards_id}", literal(tables[2])+"::regclass::oid")
	ends := append(append([]uint32{}, updateTypes...), oidInt2s, oidInt8s, oidInt8s, oidInt2s, oidInt2s, oidInt4s, oidInt8s, oidByteas, oidByteas, oidInt8)
	firsts := []uint32{oidInt2s, oidInt8s, oidInt8s, oidInt8, oidBytea, oidInt8, oidInt8, oidInt8}
	deletes := []uint32{oidInt2s, oidInt8s, oidInt8s, oidInt2s}
	_, update := cutComment(updateKeys)
	swap := func(locked string) string {
		return variant(update, "{members}", updateArrays, "{locked}", locked+onlyEnding, "{returned}", swapped)
	}
	deleted := variant(deleteMessages, "{fence}", variant(fence, "{held shards}", "$1::smallint[], $2::bigint[]"))
	end := func(locked string, receipts int) string {
		return variant(withReceipts(endMessages, receipts), "{fence}", variant(fence, "{held shards}", "$12::smallint[], $13::bigint[]"), "{held}", "mask",
			"{admit}", "m.shard = e.shard AND ((SELECT held FROM mask) >> e.shard) & 1 = 1", "{swap}", swap(locked))
	}
	// An operator's skip holds no shard. It is for a message that has failed as often as
	// the operator has seen.
	skip := variant(withReceipts(endMessages, 0), "{fence}", "", "{held}", "(SELECT count(*) AS held FROM e) mask",
		"{admit}", "m.tries = ($13::bigint[])[1] AND m.tries > 0 AND m.due > {now}", "{swap}", swap(skips))
	define("retrysafe_box_", names, []definition{
		{&s.due, "due", variant(selectDue, "{ungrouped}", ungroupedMessages), []uint32{oidInt2s, oidInt8s, oidInt8, oidInt8, oidInt8, oidBool, oidInt8}},
		{&s.first, "first", variant(variant(selectFirst, "{oldest}", oldestMessages), "{walk}", walkOldest), firsts},
		{&s.firstLarge, "first_large", variant(variant(selectFirst, "{oldest}", oldestLarge), "{walk}", walkOldest), firsts},
		{&s.endedRange, "ended_range", variant(deleteRange, "{fence}", variant(fence, "{held shards}", "$1::smallint[], $2::bigint[]")), []uint32{oidInt2s, oidInt8s, oidInt8, oidBytea}},
		{&s.ended, "ended", withReceipts(deleted, 0), deletes},
		{&s.end, "end", end(waits, 0), ends},
		{&s.endUnlocked, "end_unlocked", end(skips, 0), ends},
		{&s.endedKept, "ended_kept", withReceipts(deleted, len(deletes)+1), slices.Concat(deletes, receiptTypes)},
		{&s.endKept, "end_kept", end(waits, len(ends)+1), slices.Concat(ends, receiptTypes)},
		{&s.endKeptUnlocked, "end_kept_unlocked", end(skips, len(ends)+1), slices.Concat(ends, receiptTypes)},
		{&s.skip, "skip", skip, ends},
		{&s.wait, "wait", waitForTurn, nil},
		{&s.turn, "turn", leaseTurn, nil},
		{&s.count, "count_worker", countWorker, []uint32{oidUUID, oidInt8}},
		{&s.forget, "forget_workers", forgetWorkers, nil},
		{&s.shorten, "shorten_terms", shortenTerms, []uint32{oidInt8}},
		{&s.lease, "lease", leaseShards, []uint32{oidUUID, oidInt8}},
		{&s.failing, "failing", selectFailing, []uint32{oidInt8, oidInt8}},
		{&s.dead, "dead", selectDead, []uint32{oidInt8, oidInt8}},
		{&s.waits, "waits", selectWaits, []uint32{oidInt8}},
		{&s.letter, "letter", selectLetter, []uint32{oidInt8}},
		{&s.dispose, "dispose", disposeLetter, []uint32{oidInt8, oidInt8, oidBool, oidBool}},
		{&s.depth, "depth", selectDepth, []uint32{oidInt8}},
		{&s.receipts, "receipts", variant(selectReceipts, "{from}", "{receipts}"), []uint32{oidInt8, oidInt8}},
		{&s.receiptsOfKey, "receipts_of_key", variant(selectReceipts, "{from}", receiptsOfKey), []uint32{oidInt8, oidInt8, oidUUID, oidBytea}},
		{&s.receiptsOfRef, "receipts_of_ref", variant(selectReceipts, "{from}", receiptsOfRef), []uint32{oidInt8, oidInt8, oidBytea}},
		{&s.forgetReceipts, "forget_receipts", deleteReceipts, []uint32{oidUUID}},
		{&s.purgeReceipts, "purge_receipts", purgeReceipts, []uint32{oidInt8}},
	})
	define("", names, []definition{{&s.tx.enqueue, "tx_enqueue", enqueueMessages, nil}})
	return s
}

// outboxTables are the placeholders of the outbox's tables and their names.
func outboxTables(schema string) []string {
	names := outboxNames(schema)
	return []string{"{outbox}", names[0], "{dead}", names[1], "{shards}", names[2], "{workers}", names[3], "{receipts}", names[4]}
}

func outboxNames(schema string) []string {
	return []string{
		qualified(schema, "retrysafe_outbox"), qualified(schema, "retrysafe_dead"), qualified(schema, "retrysafe_shards"), qualified(schema, "retrysafe_workers"),
		qualified(schema, "retrysafe_receipts"),
	}
}
